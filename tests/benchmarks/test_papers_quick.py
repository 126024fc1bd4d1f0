"""The page of the papers and the reduced forms of its rows name the same things and run."""

import re
from pathlib import Path

import pytest

from benchmarks.papers_quick.__main__ import DONE, LOG, run
from benchmarks.papers_quick.rows import ROWS, Row
from benchmarks.papers_quick.small_data import prepare

PAGE = Path(__file__).resolve().parents[2] / "docs/papers.md"


def test_every_row_of_the_page_has_a_reduced_form_and_the_other_way_round() -> None:
    rows = re.findall(r"^\|.*\| ([\w, -]+) \|$", PAGE.read_text(), re.MULTILINE)
    named = {name for row in rows if row != "row" for name in row.split(", ")}
    assert named - {"---"} == {row.name for row in ROWS}


@pytest.mark.parametrize("name", ["difficulty-sheets", "difficulty-correctness"])
def test_a_reduced_form_runs_and_is_not_run_again(name: str, tmp_path: Path, shared: Path) -> None:
    (row,) = (each for each in ROWS if each.name == name)
    places = prepare(shared, tmp_path)
    assert run(row, tmp_path / name, places), (tmp_path / name / LOG).read_text()
    written = (tmp_path / name / LOG).stat().st_mtime_ns
    assert run(row, tmp_path / name, places)
    assert (tmp_path / name / LOG).stat().st_mtime_ns == written


def test_what_an_interrupted_row_has_left_is_removed(tmp_path: Path) -> None:
    (tmp_path / "row" / "run").mkdir(parents=True)
    assert run(Row("row", ()), tmp_path / "row", {})
    assert sorted(path.name for path in (tmp_path / "row").iterdir()) == [DONE, LOG]
