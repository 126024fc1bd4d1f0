"""What eight bits change of the encoder of photographs: its speed, and the wrong labels it finds.

    DIFFICULTY_SHARED=FOLDER python -m benchmarks.eight_bits [--rounds 3] [--draws 20]
    python -m benchmarks.eight_bits --emulate QEMU

Prints images per core-second of the network alone, and core-seconds of `difficulty score` on 1,060
photographs, medians of rounds in which `fp32` and `int8` take turns. Then the AUROC of `rmd`,
`label_margin` and `suspicion` in both, and the difference of their means over draws with its 95 %
interval, for the sets of `benchmarks.photo_crops`; and Spearman's correlation of `rmd` with the
entropy of people's votes on images of CIFAR-10 (CIFAR-10H).

The second prints how much the features of two images differ on other processors, which the program
qemu-x86_64 stands for.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from scipy.stats import entropy, spearmanr
from sklearn.metrics import roc_auc_score

import difficulty_service as ds
from benchmarks.evidence import data
from benchmarks.evidence.data import Study, require_data
from benchmarks.evidence.encoders import (
    PHOTOS,
    moved_photographs,
    photographs,
    place_of,
    read_photographs,
)
from benchmarks.evidence.label_sets import LabelSet, label_samples
from benchmarks.machine import machine
from benchmarks.photo_crops import MOVED, PLANTED, Set, by_people, planted
from benchmarks.quantise import normalised
from benchmarks.real_data import shared_folder
from difficulty_service.backbones import load_backbone
from difficulty_service.backbones.backbone import PRECISIONS, BackboneOptions
from difficulty_service.backbones.weights_files import PHOTO_GRAPH, PHOTO_INT8_GRAPH
from difficulty_service.datasets import open_dataset
from difficulty_service.extraction.plan import Plan
from difficulty_service.features.store import open_store
from difficulty_service.scoring.pipeline import execute

ENCODER = "builtin-photos"
NAMES = ("fp32", "int8")
SCORES = ("rmd", "label_margin", "suspicion")
BATCH, BATCHES = 8, 8

PROCESSORS = {"AVX2": "Haswell", "SSE4.2": "Nehalem"}
EMULATED = """
import sys
import numpy as np
import onnxruntime
images = np.load(sys.argv[1])
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
for graph, out in zip(sys.argv[2::2], sys.argv[3::2]):
    session = onnxruntime.InferenceSession(graph, options, providers=["CPUExecutionProvider"])
    np.save(out, session.run(None, {"images": images})[0])
"""


def images_per_core_second(rounds: int) -> dict[str, float]:
    """Of the network alone, on one core."""
    torch.set_num_threads(1)
    images = torch.rand(BATCH, 3, 260, 260, generator=torch.Generator().manual_seed(0)) * 2 - 1
    loaded = {
        name: load_backbone(ENCODER, BackboneOptions(precision=PRECISIONS[name])) for name in NAMES
    }
    rates: dict[str, list[float]] = {name: [] for name in NAMES}
    for _ in range(rounds):
        for name, backbone in loaded.items():
            backbone.encode(images)
            start = time.process_time()
            for _ in range(BATCHES):
                backbone.encode(images)
            rates[name].append(BATCH * BATCHES / (time.process_time() - start))
    return {name: statistics.median(each) for name, each in rates.items()}


def core_seconds(study: Study, rounds: int) -> dict[str, float]:
    """Of the whole command on the photographs."""
    taken: dict[str, list[float]] = {name: [] for name in NAMES}
    location, _ = place_of(study, PHOTOS)
    for _ in range(rounds):
        for name in NAMES:
            with tempfile.TemporaryDirectory() as folder:
                words = ["score", location, "--backbone", ENCODER, "--precision", name]
                words += ["--device", "cpu", "--out", f"{folder}/scores.parquet"]
                before = resource.getrusage(resource.RUSAGE_CHILDREN)
                subprocess.run(  # noqa: S603 - this program
                    [sys.executable, "-m", "difficulty_service", *words],
                    check=True,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                after = resource.getrusage(resource.RUSAGE_CHILDREN)
            used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            taken[name].append(used)
    return {name: statistics.median(each) for name, each in taken.items()}


def extract(study: Study, source: str) -> None:
    """Extracts the features that are missing."""
    location, reading = place_of(study, source)
    for name in NAMES:
        network = BackboneOptions(precision=PRECISIONS[name])
        plan = Plan(location, study.store(source, name), ENCODER, reading, network)
        execute(plan, dataset=open_dataset(location, reading))


def sets(study: Study) -> Iterator[Set]:
    """The images, with their features in both precisions."""
    extract(study, PHOTOS)
    features = {}
    for name in NAMES:
        ids, rows, given = read_photographs(study.store(PHOTOS, name))
        features[name] = rows.numpy()
    names = list(open_store(study.store(PHOTOS, "int8")).description.class_names)
    true = moved_photographs(study)
    classes = [
        names.index(true.get(sample_id, names[label]))
        for sample_id, label in zip(ids, given.tolist(), strict=True)
    ]
    draw = partial(planted, np.array(classes), MOVED)
    yield Set(f"{len(classes):,} photographs, {MOVED} moved", features, draw)
    for source in ("tiny-imagenet", "cifar10-train"):
        extract(study, source)
        images = {name: data.read_images(study, source, name) for name in NAMES}
        features = {name: each.features for name, each in images.items()}
        known = images["int8"]
        if source == "tiny-imagenet":
            draw = partial(planted, known.labels, int(PLANTED * len(known.labels)))
            yield Set("Tiny ImageNet, symmetric 10 %", features, draw)
            continue
        for kind in ("aggre", "worst"):
            samples, targets = label_samples(study, known, LabelSet(source, kind))
            draw = partial(by_people, samples.labels, targets.wrong)
            yield Set(f"CIFAR-10N, {kind}", features, draw)


def compare(images: Set, draws: int) -> NDArray[np.float64]:
    """AUROC of each draw. Shape (draws, precisions, scores)."""
    found = []
    for seed in range(draws):
        places, given, wrong = images.draw(np.random.default_rng(seed))
        row = []
        for name in NAMES:
            table = ds.score(images.features[name][places], given, scorers=("rmd", "suspicion"))
            columns = [getattr(table, score) for score in SCORES]
            row.append([_auroc(wrong, each) for each in columns])
        found.append(row)
    return np.array(found)


def _auroc(wrong: NDArray[np.bool_], scores: NDArray[np.float64]) -> float:
    known = np.isfinite(scores)  # not where an image is alone in its class
    return float(roc_auc_score(wrong[known], scores[known]))


def agreement_with_people(study: Study) -> dict[str, float]:
    """Spearman's correlation of `rmd` with the entropy of the votes on each image."""
    extract(study, "cifar10-test")
    column = data.read_columns(study, "cifar10-test", ["human_counts"])["human_counts"]
    votes = np.array(column.to_pylist(), float)
    found = {}
    for name in NAMES:
        images = data.read_images(study, "cifar10-test", name)
        rmd = ds.score(images.features, images.labels, scorers=("rmd",)).rmd
        found[name] = float(spearmanr(rmd, entropy(votes[images.positions], axis=1)).statistic)
    return found


def emulate(qemu: str) -> None:
    """Prints how the features of two images differ on processors that qemu stands for."""
    table = pq.read_table(shared_folder() / "data/tiny_imagenet_val2000.parquet").slice(5, 2)
    images = normalised(table["image"].to_pylist())
    graphs = {"fp32": PHOTO_GRAPH, "int8": PHOTO_INT8_GRAPH}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        np.save(folder / "images.npy", images.numpy())
        found = {}
        for kind in ("this one", *PROCESSORS):
            start = [] if kind == "this one" else [qemu, "-cpu", PROCESSORS[kind]]
            files = {each: folder / f"{each}-{kind}.npy" for each in NAMES}
            words = [str(word) for each in NAMES for word in (graphs[each], files[each])]
            command = [*start, sys.executable, "-c", EMULATED, str(folder / "images.npy"), *words]
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)  # noqa: S603
            found[kind] = {each: np.load(files[each]) for each in NAMES}
    print("| processor | fp32: largest difference of a feature | int8 | equal |")
    print("| --- | --: | --: | --: |")
    here = found["this one"]
    for kind in PROCESSORS:
        full, eight = (float(abs(found[kind][each] - here[each]).max()) for each in NAMES)
        equal = float((found[kind]["int8"] == here["int8"]).mean())
        print(f"| {kind} | {full:.1e} | {eight:.1e} | {equal:.1%} |")


def main() -> None:
    """Reads the command line and prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/eight-bits"))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--images", type=int, default=2_000, help="images of each dataset")
    parser.add_argument("--draws", type=int, default=20, help="draws of the labels of each set")
    parser.add_argument("--emulate", metavar="QEMU")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # few images
    print(machine())
    if arguments.emulate:
        emulate(arguments.emulate)
        return
    study = Study(arguments.folder, shared_folder(), arguments.images)
    require_data(study)
    photographs(study)
    for what, measure in (
        ("images per core-second of the network", images_per_core_second),
        ("core-seconds of the command", partial(core_seconds, study)),
    ):
        full, eight = measure(arguments.rounds).values()
        print(f"{what}: {full:.1f} in fp32, {eight:.1f} in int8, {eight / full:.2f}", flush=True)
    print("| labels | score | fp32 | int8 | difference |\n| --- | --- | --: | --: | --: |")
    for images in sets(study):
        found = compare(images, arguments.draws)
        for number, score in enumerate(SCORES):
            means = found[:, :, number].mean(axis=0)
            more = found[:, 1, number] - found[:, 0, number]
            error = 1.96 * more.std(ddof=1) / len(more) ** 0.5
            print(
                f"| {images.name} | `{score}` | {means[0]:.4f} | {means[1]:.4f} | "
                f"{more.mean():+.4f} ± {error:.4f} |",
                flush=True,
            )
    full, eight = agreement_with_people(study).values()
    print(f"correlation with people: {full:.3f} in fp32, {eight:.3f} in int8")


if __name__ == "__main__":
    main()
