"""How well does a small network learn from the images that each strategy chose to label?

Of 10,000 training images of CIFAR-10, 2, 10 and 30 % are chosen without labels: random, typical,
diverse, and hard and easy by `md_agnostic`. A residual network is trained on them from scratch,
with the right labels, and tested on all test images. Choices see the features of the built-in
encoder, which was trained on CIFAR-100; the network sees the chosen images alone. Of the 2,000
images of Tiny ImageNet, ten for each of 200 classes, two of each are for the test and choices see
the built-in encoder of photographs: there are too few for any network to learn much.

    make study-selection

Small choices are seen more often: 40 epochs of 200 images, 15 of 1,000, 6 of 3,000 of CIFAR-10;
30 of 480 and 15 of 1,120 of Tiny ImageNet. Random is beside every choice, and differences from it
are paired by the seed. All files are in runs/study-selection, where a study that was stopped
resumes; the table is `selection_networks.csv` of the evidence.
"""

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

import difficulty_service as ds
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.selection import RANDOM, held_out
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training.comparison import paired_difference
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.cifar10 import run_difficulty
from benchmarks.studies.pruning import NETWORK, TRAINING, select_images
from benchmarks.studies.tables import seed_metrics
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers
from difficulty_service.features.store import open_store

IMAGES = 10_000


@dataclass(frozen=True)
class Images:
    """A dataset to choose from.

    Attributes:
        backbone: The encoder of the features by which is chosen.
        epochs: Epochs of the networks by the share of the images that they are trained on.
    """

    name: str
    backbone: str
    epochs: Mapping[float, int]


CIFAR10 = Images("CIFAR-10", "builtin", {0.02: 40, 0.1: 15, 0.3: 6})
TINY = Images("Tiny ImageNet", "builtin-photos", {0.3: 30, 0.7: 15})
DATASETS = (CIFAR10, TINY)

CHOICES: Mapping[str, Mapping[str, Any]] = {
    RANDOM: {},
    "typical": {"strategy": "typical"},
    "diverse": {"strategy": "diverse"},
    "hard, md_agnostic": {"strategy": "hard", "by": "md_agnostic"},
    "easy, md_agnostic": {"strategy": "easy", "by": "md_agnostic"},
}
"""What is compared: the options of `ds.select`."""

COLUMNS = (
    *("dataset", "choice", "share", "count", "epochs", "seeds", "accuracy", "sd"),
    *("difference", "difference_95", "machine"),
)


@dataclass(frozen=True)
class Pool:
    """Images to choose from.

    Attributes:
        images: The dataset that they are of.
        table: File with the columns `image` and `label`.
        test: Such a file with images to test on.
        features: Their features. Shape (images, dim).
        labels: Their labels. Shape (images,).
        scores: Their scores.
    """

    images: Images
    table: Path
    test: Path
    features: Tensor
    labels: NDArray[np.int64]
    scores: ds.Scores


def select_pool(images: Images, table: Path) -> Path:
    """Writes the images to choose from, where missing; the file with those to test on."""
    data = shared_folder().resolve() / "data"
    if images == CIFAR10:
        if not table.exists():
            with replacing(table) as temporary:
                pq.write_table(select_images("cifar10", "right", IMAGES), temporary)
        return data / "cifar10_test.parquet"
    test = table.with_name("test.parquet")
    if not (table.exists() and test.exists()):
        whole = pq.read_table(data / "tiny_imagenet_val2000.parquet", columns=["image", "label"])
        # A choice may lack the last classes, which the networks shall know all the same.
        names = [str(each) for each in range(len(whole["label"].unique()))]
        kinds = {"label": {"_type": "ClassLabel", "names": names}}
        known = json.dumps({"info": {"features": kinds}})
        whole = whole.replace_schema_metadata({"huggingface": known})
        is_test = held_out(whole["label"].to_numpy())
        for path, wanted in ((table, ~is_test), (test, is_test)):
            with replacing(path) as temporary:
                pq.write_table(whole.filter(pa.array(wanted)), temporary)
    return test


def prepare(images: Images, folder: Path) -> Pool:
    """Selects the images and extracts their features, where missing."""
    folder.mkdir(parents=True, exist_ok=True)
    table, features = folder / "images.parquet", folder / "features"
    test = select_pool(images, table)
    if not (features / "errors.parquet").exists():
        options = ("--label-column", "label", "--backbone", images.backbone)
        run_difficulty("extract", table, *options, "--out", features)
    store = open_store(features)
    shards = [store.read_shard(each) for each in range(store.num_shards)]
    rows = [int(name.rpartition("#")[2]) for each in shards for name in each.sample_ids]
    vectors = torch.empty(len(rows), shards[0].features.shape[1])
    vectors[rows] = torch.cat([each.features.float() for each in shards])
    labels = pq.read_table(table, columns=["label"])["label"].to_numpy()
    return Pool(images, table, test, vectors, labels, ds.score(vectors, labels, scorers="rmd"))


def chosen_rows(pool: Pool, name: str, count: int, seed: int) -> NDArray[np.int64]:
    """Rows of the images that one choice makes, in its order."""
    scores = pool.scores if "by" in CHOICES[name] else None
    samples = (pool.features, pool.labels)
    selection = ds.select(samples, count, seed=seed, scores=scores, **CHOICES[name])
    return np.array([int(each) for each in selection.sample_ids])


def trial_of(pool: Pool, name: str, share: float, seed: int) -> Trial:
    """The training on what a choice makes, whose table is written where it is missing."""
    path = pool.table.parent / "chosen" / f"{name.replace(', ', '-')}-{share:g}-{seed}.parquet"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        count = round(share * len(pool.labels))
        rows = np.sort(chosen_rows(pool, name, count, seed))
        with replacing(path) as temporary:
            pq.write_table(pq.read_table(pool.table).take(pa.array(rows)), temporary)
    return Trial(
        f"{name.replace(',', '')} {share:g}",
        (f"data.train={path}", f"training.epochs={pool.images.epochs[share]}"),
    )


def run_study(images: Images, arguments: argparse.Namespace) -> Iterator[Row]:
    """Trains what is missing; the rows of the table."""
    folder = arguments.folder.resolve() / images.name.lower().replace(" ", "-")
    pool = prepare(images, folder)
    settings = (
        f"data.test={pool.test}",
        *("data.label_column=label", "training.precision=fp32"),
        *(*NETWORK, *TRAINING),
    )
    study = Study("cifar10_small_resnet", settings, folder / "runs", arguments.jobs)
    found: dict[tuple[str, float], list[float]] = {}
    for seed in range(arguments.seeds):
        trials = {
            (name, share): trial_of(pool, name, share, seed)
            for name in CHOICES
            for share in images.epochs
        }
        run_trials(study, list(trials.values()), [seed])
        for key, trial in trials.items():
            metrics = seed_metrics(study, trial, [seed])[seed]["metrics"]
            found.setdefault(key, []).append(100 * metrics["raw"]["accuracy"])
    yield from rows_of(pool, found)


def rows_of(pool: Pool, found: Mapping[tuple[str, float], list[float]]) -> Iterator[Row]:
    """A row for each choice and share, with its difference from the random choice.

    Args:
        found: Accuracy in % of each seed, by choice and share.
    """
    for (name, share), values in found.items():
        row = {"dataset": pool.images.name, "choice": name, "share": f"{share:g}"}
        row |= {"count": str(round(share * len(pool.labels)))}
        row |= {"epochs": str(pool.images.epochs[share]), "seeds": str(len(values))}
        row |= {"accuracy": f"{np.mean(values):.1f}"}
        if len(values) > 1:
            row["sd"] = f"{np.std(values, ddof=1):.1f}"
            if name != RANDOM:
                mean, error = paired_difference(values, found[RANDOM, share])
                row |= {"difference": f"{mean:+.1f}", "difference_95": f"{error:.1f}"}
        yield row


def main() -> None:
    """Runs what is unfinished, then writes and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3, help="runs of every choice")
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-selection"))
    arguments = parser.parse_args()
    if not list(shared_folder().glob("data/cifar10_train_*.parquet")):
        sys.exit(skipped("CIFAR-10"))
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rows = [
        {**row, "machine": machine()} for images in DATASETS for row in run_study(images, arguments)
    ]
    write_rows(DOCS / TABLES / "selection_networks.csv", COLUMNS, rows)
    write_page(DOCS)
    for row in rows:
        print(" | ".join(row.get(column, "") for column in COLUMNS))


if __name__ == "__main__":
    main()
