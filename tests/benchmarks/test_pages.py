"""The measurement of pages, in a browser."""

from pathlib import Path

import pytest

from benchmarks.machine import browser_program
from benchmarks.pages import measure_map


@pytest.mark.slow
@pytest.mark.skipif(browser_program() is None, reason="no browser is installed")
def test_a_map_is_drawn_in_both_ways(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("playwright", reason="playwright is not installed")

    measure_map(200, tmp_path)

    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == [
        "map of 200 points",
        "by WebGL",
        "by pixels",
    ]
