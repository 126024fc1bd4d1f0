"""The measurements of a GPU: every part runs with tiny sizes, and what is left out is said."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.__main__ import PARTS, has_failed, main, run_all
from benchmarks.gpu.encoders import write_images
from benchmarks.gpu.fitting import floors
from benchmarks.gpu.parts import (
    LeftOut,
    Part,
    PartResult,
    Row,
    Setting,
    imported_later,
    run_part,
)
from benchmarks.gpu.report import markdown
from benchmarks.gpu.suite import MARK, ROOT, summarise

CPU = torch.device("cpu")


def setting_for(folder: Path, seconds: float = 60, **limits: float) -> Setting:
    return Setting(CPU, quick=True, folder=folder, ends=time.monotonic() + seconds, limits=limits)


@pytest.mark.slow
def test_every_part_runs_with_tiny_sizes(tmp_path: Path) -> None:
    main(["--device", "cpu", "--quick", "--out", str(tmp_path / "out")])

    content = json.loads((tmp_path / "out" / "gpu.json").read_text())
    assert content["machine"].endswith(f"torch {torch.__version__}")
    parts = {part["name"]: part for part in content["parts"]}
    assert list(parts) == list(PARTS)
    assert {name for name, part in parts.items() if part["left_out"]} == {"tests"}
    measured = {row["what"]: row for part in content["parts"] for row in part["rows"]}
    assert measured["largest difference of two scores"]["value"] < 0.01
    for what in ("fit and score, difficulty", "builtin, bare forward pass", "knn, 500 x 8"):
        assert measured[what]["value"] > 0
        assert f"| {what} |" in (tmp_path / "out" / "gpu.md").read_text()


def test_the_minutes_are_shared_by_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, float] = {}

    def part_called(name: str) -> Part:
        def part(setting: Setting) -> Iterator[Row]:
            seen[name] = setting.left()
            yield Row("one", 1.0, "s")

        return part

    parts = {"short": (part_called("short"), 60), "long": (part_called("long"), 180)}
    monkeypatch.setattr("benchmarks.gpu.__main__.PARTS", parts)

    list(run_all(CPU, parts, pace=0.5, quick=False))

    assert seen == {"short": pytest.approx(30, abs=5), "long": pytest.approx(90, abs=5)}


def test_a_part_without_its_packages_leaves_out_itself_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "benchmarks.gpu.neighbours", None)

    result = run_part("knn", imported_later("benchmarks.gpu.neighbours:x"), setting_for(tmp_path))

    assert result.left_out == "benchmarks.gpu.neighbours is not installed"
    assert not has_failed(result)


def test_all_parts_together_take_less_than_ten_minutes() -> None:
    assert sum(seconds for _, seconds in PARTS.values()) <= 9 * 60


@pytest.mark.long
def test_tests_for_a_gpu_are_found_where_what_the_service_needs_is_not_installed() -> None:
    files = [file for file in sorted(ROOT.glob("tests/**/test_*.py")) if MARK in file.read_text()]
    files = [file for file in files if file != Path(__file__)]
    without = "import sys; sys.modules |= dict.fromkeys(('sqlalchemy', 'alembic', 'uvicorn'));"
    collect = "import pytest; sys.exit(pytest.main(sys.argv[1:]))"
    options = ("-m", "gpu", "--collect-only", "-q", "-n", "0", "-p", "no:cacheprovider")

    found = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-c", without + collect, *options, *map(str, files)],
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )

    assert found.returncode == 0, found.stdout
    assert "test_gpu.py::" in found.stdout


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_one_line_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no NVIDIA GPU answers; --device cpu --quick"):
        main(["--out", str(tmp_path / "out")])

    assert not (tmp_path / "out").exists()


def test_a_processor_is_not_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--device", "cpu"])

    assert "add --quick" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "said", "failed"),
    [
        (LeftOut("this build of faiss cannot use GPUs"), "this build of faiss", False),
        (ModuleNotFoundError("No module", name="open_clip"), "open_clip is not installed", False),
        (torch.OutOfMemoryError("out of memory"), "the device has too little memory", False),
        (RuntimeError("an illegal address\nand more"), "RuntimeError: an illegal address", True),
    ],
)
def test_numbers_before_an_error_are_kept_and_the_reason_is_said(
    tmp_path: Path, error: Exception, said: str, failed: object
) -> None:
    def part(_setting: Setting) -> Iterator[Row]:
        yield Row("one", 1.0, "s")
        raise error

    result = run_part("a part", part, setting_for(tmp_path))

    assert [row.what for row in result.rows] == ["one"]
    assert result.left_out is not None
    assert said in result.left_out
    assert "and more" not in result.left_out
    assert has_failed(result) is failed


def test_a_part_whose_time_is_up_ends_after_the_number_that_it_measures(tmp_path: Path) -> None:
    closed: list[str] = []

    def part(_setting: Setting) -> Iterator[Row]:
        try:
            yield Row("one", 1.0, "s")
            yield Row("two", 2.0, "s")
        finally:
            closed.append("memory")

    result = run_part("a part", part, setting_for(tmp_path, seconds=0))

    assert [row.what for row in result.rows] == ["one"]
    assert result.left_out == "its time was up, so numbers may be missing"
    assert closed == ["memory"]
    assert not has_failed(result)


def test_the_last_line_of_pytest_becomes_numbers() -> None:
    output = (
        "F..s\nFAILED tests/test_a.py::test_b - assert 1\n1 failed, 2 passed, 1 skipped in 3s\n"
    )

    rows = list(summarise(output))

    assert [(row.what, row.value) for row in rows] == [("failed", 1), ("passed", 2), ("skipped", 1)]
    assert "test_b" in rows[0].note
    assert has_failed(PartResult("tests", rows, 1.0, None))
    assert not has_failed(PartResult("tests", rows[1:], 1.0, None))


def test_tests_that_cannot_start_are_left_out_with_the_reason() -> None:
    with pytest.raises(LeftOut, match="pytest did not run: ERROR: Unknown config option: timeout"):
        list(summarise("", "ERROR: Unknown config option: timeout"))


def test_floors_are_those_of_arithmetic_and_of_two_reads(tmp_path: Path) -> None:
    setting = setting_for(tmp_path, copy=8e9, float32=2e9)

    rows = {row.what: row.value for row in floors(setting, 1000, 100, 11)}

    flops = 1000 * 100**2 + 1000 * (2 * 100 * 10 - 10**2)
    assert rows == {
        "floor by products in float32": pytest.approx(flops / 2e9),
        "floor by memory": pytest.approx(2 * 1000 * 100 * 4 / 8e9),
    }


def test_most_images_are_links_to_few_photographs(tmp_path: Path) -> None:
    write_images(tmp_path, 3, 8)

    files = list(tmp_path.rglob("*.jpg"))
    assert len(files) == 8
    assert len({file.stat().st_ino for file in files}) == 3


def test_a_table_has_a_row_for_each_number_and_each_reason() -> None:
    rows = [Row("a | b", 1234.5, "s"), Row("c", None, "s", "open_clip is not installed")]

    table = markdown([PartResult("part", rows, 1.0, "its time was up")])

    assert table.splitlines()[2:] == [
        "| part | a / b | 1,234 | s |  |",
        "| part | c | - | s | open_clip is not installed |",
        "| part | left out | | | its time was up |",
    ]
