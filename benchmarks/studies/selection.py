"""How well does a small network learn from the images that each strategy chose to label?

Of 10,000 training images of CIFAR-10, 2, 10 and 30 % are chosen without labels: random, typical,
diverse, and hard and easy by `md_agnostic`. A residual network is trained on them from scratch,
with the right labels, and tested on all test images. Choices see the features of the built-in
encoder, which was trained on CIFAR-100; the network sees the chosen images alone.

    make study-selection

Small choices are seen more often: 40 epochs of 200 images, 15 of 1,000, 6 of 3,000. Random is
beside every choice, and differences from it are paired by the seed. All files are in
runs/study-selection, where a study that was stopped resumes; the table is `selection_networks.csv`
of the evidence.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from torch import Tensor

import difficulty_service as ds
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.selection import RANDOM
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.evidence.training.comparison import paired_difference
from benchmarks.machine import machine
from benchmarks.studies.cifar10 import run_difficulty, shared_folder
from benchmarks.studies.pruning import NETWORK, TRAINING, select_images
from benchmarks.studies.tables import seed_metrics
from benchmarks.studies.trials import Study, Trial, run_trials
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers
from difficulty_service.features.store import open_store

IMAGES = 10_000
EPOCHS = {0.02: 40, 0.1: 15, 0.3: 6}
"""Epochs of the networks by the share of the images that they are trained on."""

CHOICES: Mapping[str, Mapping[str, str]] = {
    RANDOM: {},
    "typical": {"strategy": "typical"},
    "diverse": {"strategy": "diverse"},
    "hard, md_agnostic": {"strategy": "hard", "by": "md_agnostic"},
    "easy, md_agnostic": {"strategy": "easy", "by": "md_agnostic"},
}
"""What is compared: the options of `ds.select`."""

COLUMNS = (
    *("choice", "share", "count", "epochs", "seeds", "accuracy", "sd"),
    *("difference", "difference_95", "machine"),
)


@dataclass(frozen=True)
class Pool:
    """Images to choose from.

    Attributes:
        table: File with the columns `image` and `label`.
        features: Their features. Shape (images, dim).
        labels: Their labels. Shape (images,).
        scores: Their scores.
    """

    table: Path
    features: Tensor
    labels: NDArray[np.int64]
    scores: ds.Scores


def prepare(folder: Path) -> Pool:
    """Selects the images and extracts their features, where missing."""
    folder.mkdir(parents=True, exist_ok=True)
    table, features = folder / "images.parquet", folder / "features"
    if not table.exists():
        with replacing(table) as temporary:
            pq.write_table(select_images("cifar10", "right", IMAGES), temporary)
    if not (features / "errors.parquet").exists():
        options = ("--label-column", "label", "--backbone", "builtin")
        run_difficulty("extract", table, *options, "--out", features)
    store = open_store(features)
    parts = [store.read_part(part) for part in range(store.num_parts)]
    rows = [int(each.rpartition("#")[2]) for part in parts for each in part.sample_ids]
    vectors = torch.empty(len(rows), parts[0].features.shape[1])
    vectors[rows] = torch.cat([part.features.float() for part in parts])
    labels = pq.read_table(table, columns=["label"])["label"].to_numpy()
    return Pool(table, vectors, labels, ds.score(vectors, labels, scorers="rmd"))


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
        (f"data.train={path}", f"training.epochs={EPOCHS[share]}"),
    )


def run_study(arguments: argparse.Namespace) -> Iterator[Row]:
    """Trains what is missing; the rows of the table."""
    folder = arguments.folder.resolve()
    pool = prepare(folder)
    settings = (
        f"data.test={(shared_folder() / 'data/cifar10_test.parquet').resolve()}",
        *("data.label_column=label", "training.precision=fp32"),
        *(*NETWORK, *TRAINING),
    )
    study = Study("cifar10_small_resnet", settings, folder / "runs", arguments.jobs)
    found: dict[tuple[str, float], list[float]] = {}
    for seed in range(arguments.seeds):
        trials = {
            (name, share): trial_of(pool, name, share, seed) for name in CHOICES for share in EPOCHS
        }
        run_trials(study, list(trials.values()), [seed])
        for key, trial in trials.items():
            metrics = seed_metrics(study, trial, [seed])[seed]["metrics"]
            found.setdefault(key, []).append(100 * metrics["raw"]["accuracy"])
    yield from rows_of(found)


def rows_of(found: Mapping[tuple[str, float], list[float]]) -> Iterator[Row]:
    """A row for each choice and share, with its difference from the random choice.

    Args:
        found: Accuracy in % of each seed, by choice and share.
    """
    for (name, share), values in found.items():
        row = {"choice": name, "share": f"{share:g}", "count": str(round(share * IMAGES))}
        row |= {"epochs": str(EPOCHS[share]), "seeds": str(len(values))}
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
        sys.exit("skipped: CIFAR-10 is not in DIFFICULTY_SHARED (default ../shared)")
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    rows = [row | {"machine": machine()} for row in run_study(arguments)]
    write_rows(DOCS / TABLES / "selection_networks.csv", COLUMNS, rows)
    write_page(DOCS)
    for row in rows:
        print(" | ".join(row.get(column, "") for column in COLUMNS))


if __name__ == "__main__":
    main()
