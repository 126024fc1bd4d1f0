"""A damaged file gives the same result as the whole one, or an error with its name and a remedy.

DIFFICULTY_DAMAGED_FILES is the number of damaged files; `make fuzz` reads 7,200.
"""

import os
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.faults.damage import KINDS, read_damaged

NUM_FILES = int(os.environ.get("DIFFICULTY_DAMAGED_FILES", "110"))


def outcomes(forkserver: ForkServerContext, kind: str, folder: Path, number: int) -> Iterator[str]:
    """The outcome of each damaged file of a kind, also where reading it ends the process."""
    first = 0
    while first < number:
        part = folder / f"from-{first}"
        part.mkdir()
        process = forkserver.Process(target=read_damaged, args=(kind, part, first, number))
        process.start()
        process.join()
        errors = (part / "errors").read_text()
        lines = (part / "outcomes").read_text().splitlines()
        assert lines, errors
        first = int(lines[-1].split()[0]) + 1
        if process.exitcode:
            lines[-1] += f" ended the process with {process.exitcode}: {errors[-300:]}"
        yield from lines


@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_file_is_named_or_gives_the_same_result(
    forkserver: ForkServerContext, kind: str, tmp_path: Path
) -> None:
    number = max(1, NUM_FILES // len(KINDS))

    found = list(outcomes(forkserver, kind, tmp_path, number))

    assert [line for line in found if not line.endswith((" same", " named"))] == []
    assert len(found) == number
