"""The report of images without labels in a browser."""

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from tests.browser.conftest import SAMPLES
from tests.browser.kinds import OpenPage

COLUMNS = ["sample_id", "label", "label_name", "md_agnostic", "percentile"]


@pytest.fixture
def report(make_scored: Callable[..., Path], tmp_path: Path) -> Path:
    """A report of the usual pictures, as if nothing were known of their classes."""
    scores = read_scores(make_scored(("unlabelled",) * 3))
    table = scores.table.select(COLUMNS)
    table = table.set_column(1, "label", pa.array([0] * len(table), pa.int32()))
    told = {"image_faults": {"dark": 3}, "class_names": ["unlabelled"]}
    known = Provenance.of(scores.provenance.to_json() | told)
    write_scores(tmp_path / "scores.parquet", table, known)
    path = tmp_path / "report.html"
    make_report(read_reported(tmp_path / "scores.parquet"), path, ReportOptions())
    return path


def test_unusual_images_are_dropped_or_named_and_nothing_speaks_of_labels(
    open_page: OpenPage, report: Path
) -> None:
    page = open_page(report)

    page.locator(".look").first.click()
    title = page.locator("#dialog-title").inner_text()
    page.keyboard.press("d")
    page.locator("#other").fill("owl")
    page.locator("#other").press("Enter")
    page.keyboard.press("Escape")

    text = page.locator("main").inner_text()
    assert title == page.locator(".given").first.inner_text()
    assert page.locator(".card .stamp").all_inner_texts()[:3] == ["drop", "owl", ""]
    assert "There are no labels" in text
    assert "3 with a fault" in " ".join(text.split())
    assert not page.locator("#classes, #pairs, #filter-label").count()
    assert "probably wrong" not in text
    assert f"of {SAMPLES} labels" not in text
