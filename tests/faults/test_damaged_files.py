"""A damaged file gives the same result as the whole one, or an error with its name and a remedy.

DIFFICULTY_DAMAGED_FILES is the number of damaged files; `make fuzz` reads 7,200.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("damage.py")
KINDS = (
    *("scores", "provenance", "part", "store", "errors", "gaussians", "columns", "explanation"),
    *("predictions", "checkpoint", "run"),
)
NUM_FILES = int(os.environ.get("DIFFICULTY_DAMAGED_FILES", "110"))


def outcomes(kind: str, folder: Path, number: int) -> Iterator[str]:
    """The outcome of each damaged file of a kind, also where reading it ends the process."""
    first = 0
    while first < number:
        part = folder / f"from-{first}"
        part.mkdir()
        ended = subprocess.run(  # noqa: S603 - our own program
            [sys.executable, PROGRAM, kind, part, str(first), str(number)],
            capture_output=True,
            text=True,
            check=False,
        )
        lines = ended.stdout.splitlines()
        assert lines, ended.stderr
        first = int(lines[-1].split()[0]) + 1
        if ended.returncode:
            lines[-1] += f" ended the process with {ended.returncode}: {ended.stderr[-300:]}"
        yield from lines


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_or_gives_the_same_result(kind: str, tmp_path: Path) -> None:
    number = max(1, NUM_FILES // len(KINDS))

    found = list(outcomes(kind, tmp_path, number))

    assert [line for line in found if not line.endswith((" same", " named"))] == []
    assert len(found) == number
