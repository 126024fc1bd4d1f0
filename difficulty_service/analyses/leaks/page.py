"""The page of what test sets have in common with a training set: pairs of pictures side by side."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from difficulty_service.analyses.leaks.leaks import LeakReport, SetLeaks
from difficulty_service.base.errors import Setting, Spell
from difficulty_service.base.files import replacing
from difficulty_service.pages.cards import Pictures, dataset_name
from difficulty_service.pages.html_page import render_template, require_page_file
from difficulty_service.pages.split_samples import (
    ShownSample,
    facts_of,
    pictures_of,
    shown_sample,
)
from difficulty_service.scoring.splits import Split

STYLES, SCRIPTS = ("base.css", "report.css", "leaks.css"), ("theme.js",)

MOST_SHOWN = 120
"""Samples of a test set that are shown, each beside its copy."""


@dataclass(frozen=True)
class LeakPage:
    """What the page shows.

    Attributes:
        train: The training set.
        tests: The test sets of the report, in its order.
        train_images: Location of the dataset of the training set; None for the one that it was made
            of, without pictures where that is gone.
        test_images: The same of each test set.
    """

    report: LeakReport
    train: Split
    tests: Sequence[Split]
    train_images: str | None = None
    test_images: Sequence[str | None] = ()


@dataclass(frozen=True)
class ShownPair:
    """A sample of a test set beside its copy: one with another label, or else the most similar.

    Attributes:
        more: Number of its other copies.
    """

    test: ShownSample
    train: ShownSample
    test_label: str | None
    train_label: str | None
    similarity: float
    kind: str
    conflict: bool
    more: int


@dataclass(frozen=True)
class ShownSet:
    """A test set with the pairs that are shown of it."""

    leaks: SetLeaks
    name: str
    pairs: Sequence[ShownPair]
    has_pictures: bool


def write_leak_page(path: Path, page: LeakPage, spell: Spell) -> Sequence[str]:
    """Writes the page, which appears whole or not at all; gives sentences about missing pictures.

    Args:
        spell: Writes a setting as the caller does.

    Raises:
        DifficultyError: A dataset that was named cannot be read.
    """
    require_page_file(path)
    report = page.report
    chosen = [_chosen(test) for test in report.tests]
    notes: list[str] = []
    in_train = [row["train_id"] for rows, _ in chosen for row in rows]
    train = pictures_of(
        page.train, in_train, page.train_images, Setting("train_images"), notes, spell
    )
    sets = []
    locations = [*page.test_images, *[None] * len(page.tests)]
    for leaks, split, (rows, counts), location in zip(
        report.tests, page.tests, chosen, locations, strict=False
    ):
        ids = [row["test_id"] for row in rows]
        test = pictures_of(split, ids, location, Setting("test_images"), notes, spell)
        pairs = list(_pairs(rows, counts, test, train))
        pictured = any(sample.uris or sample.excerpts for sample in (test, train))
        sets.append(ShownSet(leaks, dataset_name(leaks.name), pairs, pictured))
    values = {
        "report": report,
        "train": dataset_name(report.train),
        "noun": page.train.noun,
        "sets": sets,
        "facts": [
            (dataset_name(split.name), facts_of(split)) for split in (page.train, *page.tests)
        ],
        "warnings": [*report.warnings, *notes],
    }
    html = render_template(
        "leaks.html.j2", values, styles=STYLES, scripts=SCRIPTS, package=__package__
    )
    with replacing(path) as temporary:
        temporary.write_text(html, "utf-8", errors="replace")
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


def _pairs(
    rows: Sequence[dict[str, Any]], counts: Sequence[int], test: Pictures, train: Pictures
) -> Iterator[ShownPair]:
    for number, (row, count) in enumerate(zip(rows, counts, strict=True)):
        yield ShownPair(
            test=shown_sample(number, row["test_id"], row["test_label"], test),
            train=shown_sample(number, row["train_id"], row["train_label"], train),
            test_label=row["test_label"],
            train_label=row["train_label"],
            similarity=row["similarity"],
            kind=row["kind"],
            conflict=row["conflict"],
            more=count - 1,
        )
