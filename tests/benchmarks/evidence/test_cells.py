"""Cells are computed once, in processes of their own, and a failure does not stop the others."""

import os
import signal
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from benchmarks.evidence import cells
from benchmarks.evidence.cells import Cell, Result, fill, measured, read_arrays, read_result
from difficulty_service.base.process_setup import keep_freed_memory


@pytest.fixture(autouse=True)
def nothing_preloaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "PRELOADED", [])


def square(number: int, log: Path) -> Result:
    with log.open("a") as file:
        file.write(f"{number}\n")
    return Result({"square": number**2}, {"numbers": np.arange(number)})


def fail() -> Result:
    raise ValueError("no such luck")


def be_killed() -> Result:
    os.kill(os.getpid(), signal.SIGKILL)
    return Result({})


def test_a_study_that_was_stopped_computes_only_what_is_missing(tmp_path: Path) -> None:
    log = tmp_path / "log"
    study = [Cell(f"squares/{number}", partial(square, number, log)) for number in (1, 2, 3)]

    fill(tmp_path, study[:2], jobs=1)
    fill(tmp_path, study, jobs=1)

    assert log.read_text().split() == ["1", "2", "3"]
    result = read_result(tmp_path, "squares/3")
    assert result is not None
    assert result["square"] == 9
    np.testing.assert_array_equal(read_arrays(tmp_path, "squares/3")["numbers"], [0, 1, 2])


@pytest.mark.parametrize("jobs", [0, 1])
def test_a_cell_that_fails_is_named_and_leaves_no_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], jobs: int
) -> None:
    study = [Cell("bad", fail), Cell("good", partial(square, 2, tmp_path / "log"))]

    failed = fill(tmp_path, study, jobs)

    assert failed == ["bad"]
    assert "no such luck" in capsys.readouterr().out
    assert read_result(tmp_path, "bad") is None
    assert read_result(tmp_path, "good") is not None


def test_without_processes_cells_are_computed_in_this_one(tmp_path: Path) -> None:
    log = tmp_path / "log"

    failed = fill(tmp_path, [Cell("here", lambda: square(3, log))], jobs=0)

    assert failed == []  # no other process could be sent a lambda
    assert (read_result(tmp_path, "here") or {})["square"] == 9


def test_a_cell_whose_process_is_killed_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    study = [Cell("killed", be_killed), Cell("good", partial(square, 2, tmp_path / "log"))]

    failed = fill(tmp_path, study, jobs=2)

    assert failed == ["killed"]
    assert read_result(tmp_path, "good") is not None


def test_the_cost_of_work_is_its_own() -> None:
    keep_freed_memory()
    earlier = [np.ones(100_000) for _ in range(150)]
    del earlier

    def work() -> float:
        end = time.process_time() + 0.05
        block = np.ones(8_000_000)
        while time.process_time() < end:
            pass
        return float(block.sum())

    returned, cost = measured(work)

    assert returned == 8_000_000
    assert cost["seconds"] is not None
    assert cost["seconds"] >= 0.05
    assert cost["megabytes"] is None or cost["megabytes"] > 50
