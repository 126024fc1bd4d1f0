"""How often the interval of a random choice of labels holds the number that is wrong.

    python -m benchmarks.evidence.random_checks [--folder runs/evidence] [--draws 200]

A person who knows the right labels looks at 50 labels in a random order, before or after 100 others
that scores doubt, most of which are wrong. Writes `random_checks.csv` with the wrong labels that
are left, the interval that is stated, and the share of draws in which it holds them, for each set
of labels of `counts.py`. Every draw is of other samples or other planted errors.
"""

import argparse
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.evidence.counts import Names, sets
from benchmarks.evidence.data import Study, require_data
from benchmarks.evidence.page import DOCS, TABLES
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder
from difficulty_service.scores.provenance import RandomCheck
from difficulty_service.scores.random_checks import ENOUGH, left_at_random

DOUBTED, DOUBTED_WRONG = 100, 0.8
"""Other labels that were looked at, and the share of wrong ones among them, at most half of all."""

TIMES = ("before", "after")
COLUMNS = (
    *("dataset", "labels", "features", "samples", "draws", "time", "left", "low", "high", "held"),
    "machine",
)


def check(wrong: NDArray[np.bool_], time: str, random: np.random.Generator) -> tuple[int, int, int]:
    """The number of wrong labels that are left, and the ends of the interval that is stated.

    Args:
        wrong: Whether each label is wrong. Shape (samples,).
        time: When the random ones were looked at, one of TIMES.
    """
    errors, others = np.flatnonzero(wrong), np.flatnonzero(~wrong)
    num_wrong = min(round(DOUBTED_WRONG * DOUBTED), len(errors) // 2)
    doubted = np.concatenate(
        [
            random.choice(errors, num_wrong, replace=False),
            random.choice(others, DOUBTED - num_wrong, replace=False),
        ]
    )
    everything = np.arange(len(wrong))
    if time == "before":
        chosen = random.choice(everything, ENOUGH, replace=False)
        doubted = np.setdiff1d(doubted, chosen)
    else:
        chosen = random.choice(np.setdiff1d(everything, doubted), ENOUGH, replace=False)
    found = int(wrong[doubted].sum())
    _, low, high = left_at_random(
        RandomCheck(
            checked=ENOUGH,
            wrong=int(wrong[chosen].sum()),
            among=len(wrong),
            since=found,
            beside=len(doubted),
            wrong_beside=found,
        )
    )
    return int(wrong.sum() - wrong[chosen].sum()) - found, low, high


def row_of(names: Names, size: int, time: str, found: NDArray[np.int64]) -> Row:
    """The row of a set: means over the draws, and how often the interval holds."""
    left, low, high = found.T
    row = dict(zip(("dataset", "labels", "features"), names, strict=True))
    row |= {"samples": str(size), "draws": str(len(found)), "time": time}
    row |= {
        name: f"{values.mean():.0f}"
        for name, values in (("left", left), ("low", low), ("high", high))
    }
    held = (low <= left) & (left <= high)
    return row | {"held": f"{held.mean():.3f}", "machine": machine()}


def main() -> None:
    """Looks at labels of every set, then writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    parser.add_argument("--draws", type=int, default=200, help="draws of each set")
    parser.add_argument("--docs", type=Path, default=DOCS, help="folder of the page")
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    rows: list[Row] = []
    for names, size, draw in sets(study):
        drawn = [draw(seed).wrong for seed in range(arguments.draws)]
        for time in TIMES:
            random = np.random.default_rng(0)
            found = np.array([check(wrong, time, random) for wrong in drawn])
            rows.append(row_of(names, size, time, found))
            print(", ".join(rows[-1].values()), flush=True)
    write_rows(arguments.docs / TABLES / "random_checks.csv", COLUMNS, rows)


if __name__ == "__main__":
    main()
