"""Is difficulty-weighted entropy better calibrated than every other loss, with a small network?

A small residual network is trained from scratch on 5,000 images of CIFAR-10 and of CIFAR-100,
long enough to fit most of them, with every loss and three seeds. Difficulty comes from MobileNetV2
with ImageNet weights. Constants are those of the papers, or chosen by the NLL of 1,000 other
training images with the first seed; the tables show the test images. All files are in
runs/study-losses, and a study that was stopped resumes.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from benchmarks.evidence.training.comparison import Difference, differences
from benchmarks.real_data import shared_folder, skipped
from benchmarks.studies.cifar10 import run_difficulty
from benchmarks.studies.tables import (
    print_searches,
    print_test_table,
    seed_metrics,
    validation_nll,
)
from benchmarks.studies.trials import Search, Study, Trial, run_trials, search_all
from difficulty_service.base.files import replacing
from difficulty_service.base.threads import num_workers

ID_COLUMNS = {"cifar10": "index", "cifar100": None}
"""Column of the sample ids of each dataset; None where no column is unique: rows are counted."""

IMAGES = 6000
VALIDATION = 1 / 6
NETWORK = (
    "model.widths=[16, 32, 96]",
    "model.blocks=[1, 1, 1]",
    "training.batch_size=64",
    "data.augmentation=flip",
)
HELD_OUT = f"data.validation={VALIDATION:.6f}"

SCHEDULE = ("loss.boundaries=[0.286, 0.714]", "loss.fractional=true")
"""Epochs 100 and 250 of 350 as fractions: where the paper on focal loss lowers gamma."""

FIXED = (
    Trial("cross-entropy", ()),
    Trial("label smoothing", ("loss.name=label_smoothing", "loss.smoothing=0.05")),
    Trial("FL-3", ("loss.name=focal", "loss.gamma=3.0")),
    Trial("focal, scheduled", ("loss.name=scheduled_focal", *SCHEDULE)),
    Trial("FLSD-53", ("loss.name=flsd_53",)),
    Trial("dual focal", ("loss.name=dual_focal",)),
    Trial("Brier", ("loss.name=brier",)),
    Trial("MMCE, weighted", ("loss.name=mmce_weighted",)),
    Trial("BSCE-GRA", ("loss.name=bsce_gra",)),
    Trial("AdaFocal", ("loss.name=adafocal",)),
    Trial("PolyLoss", ("loss.name=poly_loss",)),
    Trial("CRL", ("loss.name=correctness_ranking",)),
)
"""Losses with the constants that the trainer takes from their papers by default."""

ALPHA = "regulariser.alpha"
ALPHAS = (0.1, 0.3, 1.0)
DIFFICULTY = "difficulty-weighted entropy"


@dataclass(frozen=True)
class Subset:
    """A part of a dataset with the difficulty of its images.

    Attributes:
        train: Table of training images.
        test: Table of test images.
        id_column: Column of the sample ids, if any.
        scores: Score file of `train`.
    """

    train: Path
    test: Path
    id_column: str | None
    scores: Path


def prepare(name: str, folder: Path) -> Subset | None:
    """Selects and scores the images, where missing; None where the dataset is not available.

    Args:
        name: Name of the dataset in ID_COLUMNS.
        folder: Folder for the table and its scores.
    """
    shared, id_column = shared_folder(), ID_COLUMNS[name]
    files = sorted(shared.glob(f"data/{name}_train_*.parquet"))
    if not files:
        return None
    train, scores = folder / f"{name}.parquet", folder / f"{name}-scores.parquet"
    if not train.exists():
        images: Any = ds.dataset(files)
        rows = np.linspace(0, images.count_rows() - 1, IMAGES).round().astype(np.int64)
        columns = [column for column in (id_column, "image", "label") if column]
        table = images.take(pa.array(rows), columns=columns)
        train.parent.mkdir(parents=True, exist_ok=True)
        with replacing(train) as temporary:
            pq.write_table(table, temporary)
    if not scores.exists():
        weights = shared / "weights/mobilenetv2_100.imagenet1k.safetensors"
        run_difficulty(
            *("score", train, "--label-column", "label"),
            *(("--id-column", id_column) if id_column else ()),
            *("--backbone", "timm:mobilenetv2_100", "--weights", weights, "--out", scores),
        )
    return Subset(train, shared / f"data/{name}_test.parquet", id_column, scores)


def searches(scores: Path) -> tuple[Search, ...]:
    """Methods whose strength the papers choose for each dataset."""
    return (
        Search(
            "L1 of logits",
            ("loss.name=logit_l1",),
            "loss.coefficient",
            (0.001, 0.003, 0.01),
            refine=False,
        ),
        Search("constant entropy", (), ALPHA, ALPHAS, refine=False),
        Search(
            DIFFICULTY,
            ("regulariser.weights=scores", f"regulariser.scores={scores}"),
            ALPHA,
            ALPHAS,
            refine=False,
        ),
    )


def run_study(name: str, arguments: argparse.Namespace) -> None:
    """Trains with every method on one dataset and prints the tables."""
    data = prepare(name, arguments.folder)
    if data is None:
        sys.exit(skipped(name))
    settings = (
        f"data.train={data.train}",
        f"data.test={data.test}",
        "data.label_column=label",
        *((f"data.id_column={data.id_column}",) if data.id_column else ()),
        f"training.epochs={arguments.epochs}",
        *NETWORK,
        HELD_OUT,
    )
    study = Study("cifar10_small_resnet", settings, arguments.folder / name, arguments.jobs)
    seeds = range(arguments.seeds)
    searched = searches(data.scores)
    results = search_all(study, searched, seeds[:1], validation_nll)
    trials = [*FIXED, *(each.best for each in results)]
    run_trials(study, trials, seeds)
    print(f"## {name}\n")
    print_test_table(study, trials)
    print_searches(results)
    print_differences(study, trials, seeds)


def print_differences(study: Study, trials: Sequence[Trial], seeds: Sequence[int]) -> None:
    """Prints what difficulty-weighted entropy has more than every other method."""
    (weighted,) = (trial for trial in trials if trial.method == DIFFICULTY)
    own = seed_metrics(study, weighted, seeds)
    rows = {
        trial.method: differences(own, seed_metrics(study, trial, seeds))
        for trial in trials
        if trial is not weighted
    }
    names = [each.measure.name for each in next(iter(rows.values()))]
    print("Bold: better by more than the 95 % interval over the seeds; italic: worse.\n")
    print(f"| {DIFFICULTY} minus | {' | '.join(names)} |")
    print("| --- |" + " --- |" * len(names))
    for method, row in rows.items():
        print(f"| {method} | {' | '.join(map(_cell, row))} |")
    print()


def _cell(difference: Difference) -> str:
    measure = difference.measure
    mean, error = measure.scale * difference.mean, measure.scale * difference.error
    text = f"{mean:+.{measure.digits}f} ± {error:.{measure.digits}f}"
    mark = {1: "**", 0: "", -1: "*"}[difference.verdict]
    return f"{mark}{text}{mark}"


def main() -> None:
    """Runs the unfinished trials, then prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--datasets", nargs="+", choices=ID_COLUMNS, default=list(ID_COLUMNS))
    parser.add_argument("--seeds", type=int, default=3, help="runs of every method")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--jobs", type=int, default=num_workers(), help="number of parallel runs")
    parser.add_argument("--folder", type=Path, default=Path("runs/study-losses"))
    arguments = parser.parse_args()
    for name in arguments.datasets:
        run_study(name, arguments)


if __name__ == "__main__":
    main()
