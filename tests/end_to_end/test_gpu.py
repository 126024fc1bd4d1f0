"""Scores and classifiers that a GPU makes, by the commands that a person types."""

import io
import json
import multiprocessing
import subprocess
import sys
from multiprocessing.process import BaseProcess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from numpy.typing import NDArray
from PIL import ExifTags, Image

from benchmarks.photographs import write_photographs
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.extraction import decoding_processes
from difficulty_service.extraction.shards import extract_shard
from difficulty_service.extraction.task import ExtractionTask, ExtractOptions
from difficulty_service.features.store import open_store
from difficulty_service.images.nvjpeg import JpegCollector, jpeg_decoder
from difficulty_service.images.preparation import read_image
from difficulty_service.scores.file import read_scores

DIGITS = Path(__file__).parents[2] / "difficulty_service" / "demo" / "digits.parquet"
pytestmark = [pytest.mark.gpu, pytest.mark.slow]


def difficulty(*arguments: object) -> str:
    """Runs a command in an interpreter of its own; gives what it wrote.

    Only what scoring and training need is installed beside some GPUs, and processes that tests fork
    have loaded the service.
    """
    command = [sys.executable, "-m", "difficulty_service", *map(str, arguments)]
    done = subprocess.run(  # noqa: S603 - our own command
        command, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def scores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Score files of the bundled digits, by what computed their features."""
    folder = tmp_path_factory.mktemp("scores")
    files = {}
    for name, device, precision in (
        ("processor", "cpu", "fp32"),
        ("gpu", "cuda", "fp32"),
        ("gpu in bf16", "cuda", "auto"),
    ):
        files[name] = folder / f"{name.replace(' ', '-')}.parquet"
        options = ("--backbone", "builtin", "--device", device, "--precision", precision)
        written = difficulty("score", DIGITS, "--out", files[name], *options)
        assert f"are those of builtin, on {device}" in written
    return files


def rmd_of(scores: Path) -> NDArray[np.float64]:
    return read_scores(scores, ["rmd"]).table["rmd"].cast(pa.float64()).to_numpy()


@pytest.mark.parametrize(("name", "apart"), [("gpu", 0.01), ("gpu in bf16", 0.3)])
def test_features_of_a_gpu_get_the_scores_of_the_processor(
    name: str, apart: float, scores: dict[str, Path]
) -> None:
    there, here = rmd_of(scores[name]), rmd_of(scores["processor"])

    assert np.sqrt(np.mean((there - here) ** 2)) < apart * here.std()
    assert np.corrcoef(there.argsort().argsort(), here.argsort().argsort())[0, 1] > 1 - apart / 10


@pytest.mark.parametrize("network", ["builtin", "builtin-photos"])
def test_photographs_that_the_gpu_decodes_have_nearly_the_features_of_those_that_the_cpu_decodes(
    network: str, tmp_path: Path
) -> None:
    write_photographs(tmp_path / "photographs", 64)
    features = {}
    for mode in ("fast", "gpu"):
        store = tmp_path / mode
        options = ("--backbone", network, "--device", "cuda", "--precision", "fp32")
        folder = tmp_path / "photographs"
        difficulty("extract", folder, "--out", store, *options, "--preprocess", mode)
        rows = open_store(store).read_shard(0).features
        features[mode] = rows - rows.mean(dim=0)

    # Without interpolated colours, as nvJPEG has them, 0.97 at least on a CPU.
    assert torch.cosine_similarity(features["fast"], features["gpu"]).min() > 0.9


@pytest.mark.parametrize("number", range(1, 9))
def test_a_gpu_turns_jpegs_as_their_exif_orientation_says(number: int) -> None:
    file = io.BytesIO()
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = number
    smooth = np.linspace(0, 255, 48 * 80 * 3).reshape(48, 80, 3).astype(np.uint8)
    Image.fromarray(smooth).save(file, "JPEG", quality=95, subsampling=0, exif=exif)
    jpegs = JpegCollector()
    assert jpegs.add(file.getvalue(), max_pixels=10_000, image=0)
    collected = jpegs.collected()
    assert collected is not None
    decoder = jpeg_decoder(torch.device("cuda"))

    with decoder.beside():
        ((_, pixels),) = decoder.decode(collected)

    assert pixels is not None
    expected = read_image(lambda: io.BytesIO(file.getvalue()))
    assert isinstance(expected, torch.Tensor)
    assert (pixels.cpu().int() - expected.int()).abs().max() <= 4


def test_a_network_trained_on_a_gpu_with_the_scores_is_evaluated(
    scores: dict[str, Path], tmp_path: Path
) -> None:
    settings = {
        "data.train": DIGITS,
        "data.test": DIGITS,
        "data.augmentation": "none",
        "training.epochs": 5,
        "optimiser.learning_rate": 0.05,
        "regulariser.weights": "scores",
        "regulariser.alpha": 0.1,
    }
    chosen = [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    run = tmp_path / "run"

    difficulty(
        *("train", "cifar10_small_resnet", "--out", run, "--device", "cuda"),
        *("--seed", 0, "--scores", scores["gpu"], *chosen),
    )
    difficulty("evaluate", run, "--device", "cuda", "--mahalanobis", "--ood", DIGITS)

    measured = json.loads((run / "seed-0" / "evaluation.json").read_text())
    assert measured["the recipe's test data"]["raw"]["accuracy"] > 0.5


@pytest.mark.usefixtures("new_interpreters")
def test_processes_and_threads_that_decode_give_a_gpu_the_same_images(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = BackboneOptions(device=torch.device("cuda"))
    dataset = open_dataset(str(DIGITS), DatasetOptions(limit=500))
    options = ExtractOptions(batch_size=100, workers=3)
    task = ExtractionTask(dataset, "builtin", network, options)
    backbone = load_backbone("builtin", network)

    by_threads = extract_shard(task, backbone, 0)
    monkeypatch.setattr(decoding_processes, "LEAST_IMAGES", 1)
    started: list[BaseProcess] = []
    by_processes = extract_shard(
        task, backbone, 0, lambda *_: started.extend(multiprocessing.active_children())
    )

    assert started
    np.testing.assert_array_equal(by_processes.table.features, by_threads.table.features)
