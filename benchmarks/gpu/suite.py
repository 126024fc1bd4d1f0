"""The tests that need a GPU, in a process of their own."""

import importlib.util
import math
import re
import subprocess
import sys

from benchmarks.gpu.parts import BENCHMARKS, LeftOut, Row, Rows, Setting

ROOT = BENCHMARKS.parent
MARK = "pytest.mark.gpu"


BAD = ("failed", "error", "errors")
"""Outcomes that a working project has none of."""


def run_tests(setting: Setting) -> Rows:
    """How many pass, fail and are skipped."""
    if not setting.on_gpu:
        raise LeftOut("the tests need a GPU")
    if importlib.util.find_spec("pytest") is None:
        raise LeftOut("pytest is not installed")
    files = [str(file) for file in sorted(ROOT.glob("tests/**/*.py")) if MARK in file.read_text()]
    if not files:
        raise LeftOut("the tests are not beside the benchmarks")
    seconds = setting.left()
    setting.free_memory()  # for the process of the tests
    command = [sys.executable, "-m", "pytest", "-m", "gpu", "-q", "-p", "no:cacheprovider"]
    command.append("--continue-on-collection-errors")  # of files whose packages are missing
    try:
        run = subprocess.run(  # noqa: S603 - our own command
            [*command, "--basetemp", str(setting.folder / "tests"), *files],
            cwd=ROOT,
            timeout=None if math.isinf(seconds) else max(1.0, seconds),
            check=False,
            capture_output=True,
            text=True,
        )
    except subprocess.TimeoutExpired:
        raise LeftOut("the tests were stopped: their time was up") from None
    yield from summarise(run.stdout, run.stderr)


def summarise(output: str, errors: str = "") -> Rows:
    """Numbers of the last line of pytest, and the names of tests that failed."""
    lines = [line for line in output.splitlines() if line.strip()]
    counts = re.findall(r"(\d+) (passed|failed|errors?|skipped)", lines[-1] if lines else "")
    if not counts:
        last = [*lines, *errors.splitlines()][-1:]
        raise LeftOut(f"pytest did not run: {' '.join(last)}")
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    for number, outcome in counts:
        named = "; ".join(failed) if outcome in BAD else ""
        yield Row(outcome, int(number), "tests", named)
