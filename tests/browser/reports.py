"""Reports of score files, and what is looked for in them."""

from pathlib import Path
from typing import Any

import pytest

from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.file import read_scores
from tests.browser.kinds import Page


def write_report(scores: Path) -> Path:
    """Writes the report of a score file beside it."""
    path = scores.with_suffix(".html")
    make_report(read_reported(scores), path, ReportOptions())
    return path


def doubtful_rows(scores: Path) -> list[dict[str, Any]]:
    """What a score file says of its doubtful samples, the largest margin first."""
    contents = read_scores(scores)
    names = contents.provenance.class_names
    rows = [
        row | {"nearest_label_name": names[row["nearest_label"]]}
        for row in contents.table.to_pylist()
        if row["label_margin"] > 0
    ]
    return sorted(rows, key=lambda row: -row["label_margin"])


def axe_findings(page: Page) -> list[tuple[str, str]]:
    """Runs axe on a page; gives the rule and the first element of each finding."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    # It would read the styles of a file again, which a browser does not let it, and describe
    # every element that passes, which takes longer than to look at it.
    options = {"preload": False, "resultTypes": ["violations"]}
    findings = axe.run(page, options=options).response["violations"]
    return [(each["id"], each["nodes"][0]["html"]) for each in findings]
