"""How many wrong labels are said to be left after a round of review, beside how many are.

    python -m benchmarks.evidence.rounds [--folder runs/rounds] [--seeds 3] [--share 0.05]
        [--limit 10000]

A person who knows the right labels looks at some samples in an order, and what is decided is known
to the next fit. Writes `rounds.csv` with the wrong labels that were found and that are left, how
many are said to be left, and how often the 95 % interval holds their number. Draws are of some
images of each dataset, evenly spaced, whose features are extracted first.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.counts import Labelled, Names, sets
from benchmarks.evidence.data import Study, require_data
from benchmarks.evidence.page import DOCS, TABLES
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample, MarkHistory, Marks
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.random_checks import left_at_random
from difficulty_service.scores.samples import to_samples
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.marked_features import apply_marks
from difficulty_service.scoring.store import score_in_memory
from difficulty_service.settings.options import ScorerOptions

ORDERS = ("p_wrong", "rmd", "random")
COLUMNS = (
    *("dataset", "labels", "features", "samples", "draws", "order", "reviewed", "found", "left"),
    *("said", "low", "high", "covered", "machine"),
)


@dataclass(frozen=True)
class Round:
    """What one round of review found, and what is said to be left."""

    found: int
    left: int
    said: int
    low: int
    high: int

    @property
    def covered(self) -> bool:
        """Whether the interval holds the number of wrong labels that are left."""
        return self.low <= self.left <= self.high


def score(source: FeatureSource) -> ScoreFile:
    """Scores with the default statistics."""
    options = ScorerOptions(scorers=("rmd", "suspicion"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # what a reader of a file should know
        return score_in_memory(source, fit_store(source, FitOptions()), options)


def order_of(scores: ScoreFile, order: str, seed: int) -> NDArray[np.int64]:
    """Rows in the order in which they are looked at."""
    if order == "random":
        return np.random.default_rng(seed).permutation(len(scores.table))
    values = scores.table[order].to_numpy().astype(np.float64)
    return np.argsort(-np.nan_to_num(values, nan=-np.inf), kind="stable")


def review(samples: Labelled, rows: NDArray[np.int64], order: str) -> Round:
    """Decides about some rows and scores again."""
    marks = [
        MarkedSample(str(row), Mark.RELABEL, str(samples.right[row]), order=order)
        if samples.wrong[row]
        else MarkedSample(str(row), Mark.KEEP, order=order)
        for row in rows.tolist()
    ]
    source = read_arrays(samples.features, samples.labels, None)
    marked = apply_marks(source, MarkHistory(later=Marks.of(marks)))
    scores = score(marked)
    counts, fit = to_samples(scores).label_counts, scores.provenance.suspicion
    if counts is None or counts.left is None or fit is None or fit.noise_wrong is None:
        raise RuntimeError("nothing was fitted to the labels")
    found = int(samples.wrong[rows].sum())
    said = (round(fit.noise_wrong * counts.judged) - found, *counts.left)
    if counts.check is not None:
        said = left_at_random(counts.check)
    return Round(found, int(samples.wrong.sum()) - found, *said)


def row_of(names: Names, size: int, order: str, reviewed: int, rounds: list[Round]) -> Row:
    """The row of an order: means over the draws."""
    row = dict(zip(("dataset", "labels", "features"), names, strict=True))
    row |= {"samples": str(size), "draws": str(len(rounds)), "order": order}
    row["reviewed"] = str(reviewed)
    for name in ("found", "left", "said", "low", "high"):
        row[name] = f"{np.mean([getattr(each, name) for each in rounds]):.0f}"
    row["covered"] = str(sum(each.covered for each in rounds))
    return row | {"machine": machine()}


def rows_of(
    names: Names, size: int, draw: Callable[[int], Labelled], seeds: int, share: float
) -> Iterator[Row]:
    """The rows of a set of labels, of which a share is looked at in each order."""
    draws = [draw(seed) for seed in range(seeds)]
    before = [score(read_arrays(each.features, each.labels, None)) for each in draws]
    reviewed = max(50, round(share * size))
    for order in ORDERS:
        rounds = [
            review(samples, order_of(scores, order, seed)[:reviewed], order)
            for seed, (samples, scores) in enumerate(zip(draws, before, strict=True))
        ]
        yield row_of(names, size, order, reviewed, rounds)


def main() -> None:
    """Reviews every set of labels with known wrong ones, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/rounds"))
    parser.add_argument("--seeds", type=int, default=3, help="draws of each set")
    parser.add_argument("--share", type=float, default=0.05, help="share that is looked at")
    parser.add_argument("--limit", type=int, default=10_000, help="images of each dataset")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    arguments = parser.parse_args()
    shared = shared_folder()
    study = Study(arguments.folder, shared, arguments.limit)
    require_data(study)
    rows: list[Row] = []
    for names, size, draw in sets(study):
        for row in rows_of(names, size, draw, arguments.seeds, arguments.share):
            rows.append(row)
            print(", ".join(row.values()), flush=True)
    write_rows(arguments.docs / TABLES / "rounds.csv", COLUMNS, rows)


if __name__ == "__main__":
    main()
