"""Decisions about tags are reviewed by keyboard, and the table of tags follows them alone."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

import difficulty_service as ds
from difficulty_service.cli import create_app
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.reports.assemble import ReportOptions, make_report, read_reported
from difficulty_service.scores.file import read_scores
from tests.browser.kinds import OpenPage

pytestmark = pytest.mark.analysis("tags")

IMAGES, WRONG, MISSING = 120, 5, 9
TAGS = ("blue", "green", "red")


@pytest.fixture(scope="module")
def decisions(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Decisions about the tags of the red and blue pictures in a table, with two errors."""
    folder = tmp_path_factory.mktemp("tags")
    random = np.random.default_rng(0)
    right = random.random((IMAGES, 3)) < 0.4
    right[WRONG], right[MISSING] = (False, True, False), (True, False, True)
    encoded = []
    for row in right:
        file = BytesIO()
        colour = tuple(int(200 * row[tag]) + 30 for tag in (2, 1, 0))
        Image.new("RGB", (32, 32), colour).save(file, "PNG")
        encoded.append(file.getvalue())
    has = right.copy()
    has[WRONG, 2], has[MISSING, 0] = True, False
    tags = [[tag for tag, each in zip(TAGS, row, strict=True) if each] for row in has]
    ids = [f"{row:03}.png" for row in range(IMAGES)]
    table = pa.table({"key": ids, "image": encoded, "tags": tags, "note": range(IMAGES)})
    pq.write_table(table, folder / "images.parquet")
    features = random.standard_normal((IMAGES, 6)) + 6 * right @ np.eye(3, 6)
    np.savez(folder / "v.npz", features=features, labels=np.zeros(IMAGES, int), ids=ids)
    ds.tags(
        folder / "v.npz",
        folder / "images.parquet",
        id_column="key",
        out=folder / "decisions.parquet",
    )
    return folder / "decisions.parquet"


def test_tags_are_reviewed_by_keyboard_and_written_back(
    open_page: OpenPage, decisions: Path, tmp_path: Path
) -> None:
    images = decisions.with_name("images.parquet")
    reading = DatasetOptions(unlabelled=True, id_column="key")
    path = tmp_path / "report.html"
    make_report(read_reported(decisions), path, ReportOptions(str(images), reading))
    table = read_scores(decisions).table.to_pylist()
    suspects = sorted(table, key=lambda row: -row["suspicion"])[:3]

    page = open_page(path)
    page.locator(".look").first.focus()
    shown = [page.locator(".card").nth(place).inner_text() for place in range(2)]
    page.keyboard.press("r")
    page.keyboard.press("r")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download marks").click()
    download.value.save_as(tmp_path / "marks.csv")
    words = ("clean", decisions, "--marks", tmp_path / "marks.csv", "--out")
    create_app()([*map(str, words), str(tmp_path / "cleaned.parquet")])

    assert {row["sample_id"] for row in suspects[:2]} == {"005.png#red", "009.png#blue"}
    assert "not red" in "".join(shown)
    assert "not blue" in "".join(shown)
    before, after = pq.read_table(images), pq.read_table(tmp_path / "cleaned.parquet")
    assert after.drop_columns("tags").equals(before.drop_columns("tags"))
    changed = {
        row: new
        for row, (old, new) in enumerate(
            zip(before["tags"].to_pylist(), after["tags"].to_pylist(), strict=True)
        )
        if old != new
    }
    assert changed == {WRONG: ["green"], MISSING: ["red", "blue"]}
