"""The commands of the page about ImageNet run on its archives, with fewer and smaller images."""

import io
import json
import sys
import tarfile
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from scipy.io import savemat

from difficulty_service.scores.file import read_scores
from docs import imagenet
from tests.end_to_end.test_pages import FUNCTIONS, Relay, lines_of
from tests.warm_command import run_script, warm_command

CLASSES, IMAGES_OF_CLASS = 1000, 20
WORDNET_IDS = [f"n{1440764 + 37 * number:08}" for number in range(CLASSES)]
SMALLER = (
    ("--backbone clip-vit-b16 --augment-runs 5", "--backbone small"),
    ("--device all", "--device cpu"),
    ("difficulty compare", "difficulty compare --resamples 10"),
    (
        "--set data.train=",
        "--set model.name=small_resnet --set model.widths=[4] --set model.blocks=[1] "
        "--set data.image_size=16 --set data.validation=0.1 --set optimiser.learning_rate=0.5 "
        "--set training.epochs=1 --set schedule.milestones=[0.5] --set training.seeds=[0] "
        "--set training.precision=fp32 --set data.train=",
    ),
)
"""What is changed in the commands: text and its replacement."""


def jpeg(generator: np.random.Generator, colours: NDArray[np.int64]) -> bytes:
    """A noisy image of eight by eight pixels in four colours."""
    pixels = np.repeat(np.repeat(colours, 4, axis=0), 4, axis=1)
    noisy = (pixels + generator.integers(-30, 30, pixels.shape)).clip(0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(noisy).save(stream, "JPEG")
    return stream.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    tar.addfile(member, io.BytesIO(content))


def packed(files: dict[str, bytes]) -> bytes:
    """A tar with these files."""
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w") as tar:
        for name, content in files.items():
            add(tar, name, content)
    return stream.getvalue()


def write_archives(folder: Path) -> None:
    """Writes the three archives, with one image of each class to validate."""
    generator = np.random.default_rng(0)
    colours = generator.integers(0, 256, (CLASSES, 2, 2, 3))
    tars = {}
    for wordnet_id, own in zip(WORDNET_IDS, colours, strict=True):
        numbers = generator.choice(30_000, IMAGES_OF_CLASS, replace=False).tolist()
        images = {f"{wordnet_id}_{number}.JPEG": jpeg(generator, own) for number in numbers}
        tars[f"{wordnet_id}.tar"] = packed(images)
    (folder / "ILSVRC2012_img_train.tar").write_bytes(packed(tars))
    order = generator.permutation(CLASSES).tolist()
    images = {
        f"ILSVRC2012_val_{number:08}.JPEG": jpeg(generator, colours[place])
        for number, place in enumerate(order, 1)
    }
    (folder / "ILSVRC2012_img_val.tar").write_bytes(packed(images))
    kind = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num", "O")]
    rows = [(number, name, "word", "", 0) for number, name in enumerate(WORDNET_IDS, 1)]
    meta = io.BytesIO()
    savemat(meta, {"synsets": np.array(rows, dtype=kind).reshape(-1, 1)})
    truth = "".join(f"{place + 1}\n" for place in order).encode()
    with tarfile.open(folder / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as tar:
        add(tar, "ILSVRC2012_devkit_t12/data/meta.mat", meta.getvalue())
        add(tar, "ILSVRC2012_devkit_t12/data/ILSVRC2012_validation_ground_truth.txt", truth)


def smaller(line: str) -> str:
    for old, new in SMALLER:
        line = line.replace(old, new)
    return line


@pytest.mark.long
def test_the_archives_become_scores_and_networks_by_the_commands_of_the_page(
    fork_command: Callable[..., ForkServerProcess], tmp_path: Path
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    write_archives(here)
    # One run by two processes, which are new interpreters, and the other by a single one.
    launched = "accelerate launch --num_processes 8 -m"
    text = "\n".join(map(smaller, lines_of(imagenet.PAGE)))
    torchrun = f"ACCELERATE_USE_CPU=true {sys.executable} -m torch.distributed.run"
    text = text.replace(launched, f"{torchrun} --nproc_per_node 2 --standalone -m", 1)
    relay = Relay(fork_command, tmp_path)

    with warm_command(relay.run) as commands:
        done = run_script(FUNCTIONS + text.replace(launched, "launch"), commands, here)

    assert done.returncode == 0, done.stdout + done.stderr
    scores = read_scores(here / "scores.parquet")
    assert scores.table.num_rows == CLASSES * IMAGES_OF_CLASS
    assert sorted(scores.table["label_name"].unique().to_pylist()) == WORDNET_IDS
    for run in ("weighted", "cross-entropy"):
        results = json.loads((here / f"runs/{run}/seed-0/metrics.json").read_text())
        assert results
    assert "training samples, 1 epochs, 2 processes" in done.stdout + done.stderr


def test_the_table_of_disk_and_hours_is_that_of_the_measured_rates() -> None:
    assert imagenet.PAGE.read_text() == imagenet.page(), "run: python docs/imagenet.py"
