"""The three classes that fit best, in a report: their bars, their keys and where they are."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES
from tests.browser.kinds import OpenPage

CLASSES = ("bird", "Bernese mountain dog of the high Alps", "dog")  # of different lengths
SHARES = (0.62, 0.375, 0.001)


@pytest.fixture
def report(make_scored: Callable[..., Path], tmp_path: Path) -> Path:
    """A report in which another class fits each sample better, and its own one second best."""
    scores = read_scores(make_scored(CLASSES))
    labels = scores.table["label"].to_numpy()
    columns = {"suspicion": pa.array(np.full(len(labels), -1.0))}
    columns["suggested_label"] = pa.array((labels + 1) % 3)
    places = zip(LIKELIEST_CLASSES.items(), (1, 0, 2), SHARES, strict=True)
    for (label, probability), step, share in places:
        columns[label] = pa.array((labels + step) % 3)
        columns[probability] = pa.array(np.full(len(labels), share))
    table = scores.table
    for name, column in columns.items():
        table = table.append_column(name, column)
    write_scores(tmp_path / "scores.parquet", table, scores.provenance)
    path = tmp_path / "report.html"
    make_report(read_reported(tmp_path / "scores.parquet"), path, ReportOptions())
    return path


def test_the_classes_that_fit_best_have_bars_and_keys(open_page: OpenPage, report: Path) -> None:
    page = open_page(report)
    names = page.locator(".given").all_inner_texts()[:4]
    third = CLASSES[(CLASSES.index(names[2]) + 2) % 3]
    other = CLASSES[(CLASSES.index(names[0]) + 1) % 3]

    page.locator(".look").first.click()
    bars = page.locator(".fit")
    words = [" ".join(text.split()) for text in bars.all_inner_texts()]
    widths = "all => all.map(each => each.getAttribute('width'))"
    lengths = bars.locator("rect").evaluate_all(widths)
    picture = "getComputedStyle(document.querySelector('#dialog-picture img')).imageRendering"
    page.keyboard.press("z")
    sharp = page.evaluate(picture)
    page.keyboard.press("z")
    page.keyboard.press("1")
    page.keyboard.press("2")
    bars.nth(2).click()
    page.keyboard.press("Escape")
    page.keyboard.press("2")

    last = ({*CLASSES} - {names[0], other}).pop()
    assert words == [f"1 {other} 62 %", f"2 {names[0]} 38 %", f"3 {last} < 1 %"]
    assert lengths == ["62%", "38%", "0%"]
    assert (sharp, page.evaluate(picture)) == ("pixelated", "auto")
    assert page.locator(".stamp").all_inner_texts()[:4] == [other, "keep", third, "keep"]


@pytest.mark.parametrize("device", ["desktop", "phone"])
def test_twenty_clicks_on_one_spot_make_twenty_marks(
    open_page: OpenPage, report: Path, device: str
) -> None:
    page = open_page(report, device)
    page.locator(".look").first.click()
    controls = page.locator(".decisions button:visible, .decisions input:visible")
    before = [each.bounding_box() for each in controls.all()]
    box = page.locator(".decisions [data-decision=relabel]").bounding_box()

    for _ in range(20):
        page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)

    assert page.locator(".card[data-mark=relabel]").count() == 20
    assert [each.bounding_box() for each in controls.all()] == before
    assert min(each["height"] for each in before) >= 44
