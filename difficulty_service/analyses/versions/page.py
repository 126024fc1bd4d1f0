"""The page of a new version of a dataset: what is new and hard, and what has another label."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from difficulty_service.analyses.versions.changes import ChangeReport
from difficulty_service.analyses.versions.version_matches import ADDED, CHANGED
from difficulty_service.base.errors import ReportError, Setting, Spell
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

STYLES, SCRIPTS = ("base.css", "report.css", "leaks.css", "changes.css"), ("theme.js",)

MOST_SHOWN = 120
"""Samples of a section that are shown."""


@dataclass(frozen=True)
class ChangePage:
    """What the page shows.

    Attributes:
        images: Location of the dataset of the new version; None for the one that its features were
            made of, without pictures where that is gone.
    """

    report: ChangeReport
    old: Split
    new: Split
    images: str | None = None


@dataclass(frozen=True)
class ShownChange:
    """A sample of the new version, with what is known of it."""

    sample: ShownSample
    old_label: str | None
    new_label: str | None
    relabelled: bool
    score: float | None
    novelty: float | None


@dataclass(frozen=True)
class ShownSection:
    """Some of the changes of one kind.

    Attributes:
        total: Number of all of them.
    """

    changes: Sequence[ShownChange]
    total: int


def write_change_page(path: Path, page: ChangePage, spell: Spell) -> Sequence[str]:
    """Writes the page, which appears whole or not at all; gives sentences about missing pictures.

    Args:
        spell: Writes a setting as the caller does.

    Raises:
        ReportError: There are moments only, which tell nothing of samples.
        DifficultyError: A dataset that was named cannot be read.
    """
    require_page_file(path)
    report = page.report
    if report.table is None:
        raise ReportError("Gaussians hold no samples to show on a page")
    rows = report.table.to_pylist()
    fresh = new_and_hard(report.table)
    relabelled = [row for row in rows if row["relabelled"]]
    shown = [each["new_id"] for each in [*fresh[:MOST_SHOWN], *relabelled[:MOST_SHOWN]]]
    notes: list[str] = []
    ids = list(dict.fromkeys(shown))
    pictures = pictures_of(page.new, ids, page.images, Setting("images"), notes, spell)
    values = {
        "report": report,
        "old": dataset_name(report.old),
        "new": dataset_name(report.new),
        "noun": report.noun,
        "fresh": _section(fresh, pictures, 0),
        "relabelled": _section(relabelled, pictures, MOST_SHOWN),
        "by_score": any(row["score"] is not None for row in fresh),
        "has_pictures": bool(pictures.uris or pictures.excerpts),
        "classes": report.classes.to_pylist(),
        "facts": [(dataset_name(each.name), facts_of(each)) for each in (page.old, page.new)],
        "warnings": [*report.warnings, *notes],
    }
    html = render_template(
        "changes.html.j2", values, styles=STYLES, scripts=SCRIPTS, package=__package__
    )
    with replacing(path) as temporary:
        temporary.write_text(html, "utf-8", errors="replace")
    return notes


def new_and_hard(table: pa.Table) -> list[dict[str, Any]]:
    """Added samples and those with other bytes, the hardest first and then the newest.

    Args:
        table: Changes, with the columns of `scores.changes.SCHEMA`.
    """
    rows = [row for row in table.to_pylist() if row["kind"] in (ADDED, CHANGED)]

    def order(row: dict[str, Any]) -> tuple[float, float]:
        known = (row["score"], row["novelty"])
        score, novelty = (-np.inf if each is None else each for each in known)
        return -score, -novelty

    return sorted(rows, key=order)


def _section(rows: Sequence[dict[str, Any]], pictures: Pictures, first: int) -> ShownSection:
    shown = [
        ShownChange(
            sample=shown_sample(first + number, row["new_id"], row["new_label"], pictures),
            old_label=row["old_label"],
            new_label=row["new_label"],
            relabelled=row["relabelled"],
            score=row["score"],
            novelty=row["novelty"],
        )
        for number, row in enumerate(rows[:MOST_SHOWN])
    ]
    return ShownSection(shown, len(rows))
