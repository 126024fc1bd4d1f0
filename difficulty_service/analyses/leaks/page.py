"""The page of what test sets have in common with a training set: pairs of pictures side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.analyses.leaks.leaks import LeakReport, SetLeaks
from difficulty_service.base.errors import Setting, Spell
from difficulty_service.pages.cards import dataset_name
from difficulty_service.pages.html_page import require_page_file, write_page
from difficulty_service.pages.split_samples import facts_of, pictures_of, shown_sample
from difficulty_service.scoring.splits import Split

STYLES = ("base.css", "report.css", "leaks.css")

MOST_SHOWN = 120
"""Samples of a test set that are shown, each beside its copy."""


@dataclass(frozen=True)
class ShownSet:
    """A test set with the pairs that are shown of it.

    Attributes:
        pairs: Rows of its table of pairs, one a sample: one with another label, or else the most
            similar; with both samples, and the number of `more` copies of it.
    """

    leaks: SetLeaks
    name: str
    pairs: Sequence[Mapping[str, Any]]
    has_pictures: bool


def write_leak_page(
    path: Path,
    report: LeakReport,
    splits: Sequence[Split],
    images: Sequence[str | None],
    spell: Spell,
) -> Sequence[str]:
    """Writes the page, which appears whole or not at all; gives sentences about missing pictures.

    Args:
        splits: The training set, then the test sets of the report, in its order.
        images: Location of the dataset of each; None, as beyond the last, for the one that it was
            made of, without pictures where that is gone.
        spell: Writes a setting as the caller does.

    Raises:
        DifficultyError: A dataset that was named cannot be read.
    """
    require_page_file(path)
    train_set, *test_sets = splits
    located: list[str | None] = [*images, *[None] * len(splits)]
    chosen = [_chosen(test) for test in report.tests]
    notes: list[str] = []
    in_train = [row["train_id"] for rows, _ in chosen for row in rows]
    train = pictures_of(train_set, in_train, located[0], Setting("train_images"), notes, spell)
    sets = []
    for leaks, split, (rows, counts), location in zip(
        report.tests, test_sets, chosen, located[1:], strict=False
    ):
        ids = [row["test_id"] for row in rows]
        test = pictures_of(split, ids, location, Setting("test_images"), notes, spell)
        pairs = [
            {
                **row,
                "test": shown_sample(number, row["test_id"], row["test_label"], test),
                "train": shown_sample(number, row["train_id"], row["train_label"], train),
                "more": count - 1,
            }
            for number, (row, count) in enumerate(zip(rows, counts, strict=True))
        ]
        pictured = any(sample.uris or sample.excerpts for sample in (test, train))
        sets.append(ShownSet(leaks, dataset_name(leaks.name), pairs, pictured))
    values = {
        "report": report,
        "train": dataset_name(report.train),
        "noun": train_set.noun,
        "sets": sets,
        "facts": [(dataset_name(split.name), facts_of(split)) for split in splits],
        "warnings": [*report.warnings, *notes],
    }
    write_page(path, "leaks.html.j2", values, styles=STYLES, package=__package__)
    return notes


def _chosen(test: SetLeaks) -> tuple[Sequence[dict[str, Any]], Sequence[int]]:
    """The first pair of each of the first samples, and the number of pairs of each of these."""
    counts: dict[str, int] = {}
    first: dict[str, int] = {}
    for row, sample_id in enumerate(test.pairs["test_id"].to_pylist()):
        first.setdefault(sample_id, row)
        counts[sample_id] = counts.get(sample_id, 0) + 1
    shown = list(first.items())[:MOST_SHOWN]
    rows = test.pairs.take(pa.array([row for _, row in shown], pa.int64())).to_pylist()
    return rows, [counts[sample_id] for sample_id, _ in shown]
