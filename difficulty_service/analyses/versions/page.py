"""The page of a new version of a dataset: what is new and hard, and what has another label."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from difficulty_service.analyses.versions.changes import ChangeReport
from difficulty_service.analyses.versions.version_matches import ADDED, CHANGED
from difficulty_service.base.errors import ReportError, Setting, Spell
from difficulty_service.pages.cards import Pictures, dataset_name
from difficulty_service.pages.html_page import require_page_file, write_page
from difficulty_service.pages.split_samples import facts_of, pictures_of, shown_sample
from difficulty_service.scoring.splits import Split

STYLES = ("base.css", "report.css", "leaks.css", "changes.css")

MOST_SHOWN = 120
"""Samples of a section that are shown."""


def write_change_page(
    path: Path,
    report: ChangeReport,
    versions: tuple[Split, Split],
    images: str | None,
    spell: Spell,
) -> Sequence[str]:
    """Writes the page, which appears whole or not at all; gives sentences about missing pictures.

    Args:
        versions: The old and the new one.
        images: Location of the dataset of the new version; None for the one that its features were
            made of, without pictures where that is gone.
        spell: Writes a setting as the caller does.

    Raises:
        ReportError: There are moments only, which tell nothing of samples.
        DifficultyError: A dataset that was named cannot be read.
    """
    require_page_file(path)
    if report.table is None:
        raise ReportError("Gaussians hold no samples to show on a page")
    rows = report.table.to_pylist()
    fresh = new_and_hard(report.table)
    relabelled = [row for row in rows if row["relabelled"]]
    shown = [each["new_id"] for each in [*fresh[:MOST_SHOWN], *relabelled[:MOST_SHOWN]]]
    notes: list[str] = []
    ids = list(dict.fromkeys(shown))
    pictures = pictures_of(versions[1], ids, images, Setting("images"), notes, spell)
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
        "facts": [(dataset_name(each.name), facts_of(each)) for each in versions],
        "warnings": [*report.warnings, *notes],
    }
    write_page(path, "changes.html.j2", values, styles=STYLES, package=__package__)
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


def _section(rows: Sequence[dict[str, Any]], pictures: Pictures, first: int) -> Mapping[str, Any]:
    """The first of some changes, each with its sample, and the number of all of them."""
    changes = [
        {**row, "sample": shown_sample(number, row["new_id"], row["new_label"], pictures)}
        for number, row in enumerate(rows[:MOST_SHOWN], first)
    ]
    return {"changes": changes, "total": len(rows)}
