"""A damaged file gives the same result as the whole one, or an error with its name and a remedy.

Of files that people edit a warning may say that they have changed, and those that other programs
wrote, which have no checksum, may give another result; neither may give a traceback or take memory.

DIFFICULTY_DAMAGED_FILES is the number of damaged files; `make fuzz` reads 30,000.
"""

import logging
import os
from collections import Counter
from collections.abc import Iterator
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from tests.faults.damage import ALL, FOREIGN, TEXTS, read_damaged

pytestmark = pytest.mark.analysis("audit")

NUM_FILES = int(os.environ.get("DIFFICULTY_DAMAGED_FILES", "300"))
ROOM = 300  # MB that a process may grow by


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
        first = number
        if process.exitcode:
            first = int(lines[-1].split()[0]) + 1
            lines[-1] += f" ended the process with {process.exitcode}: {errors[-300:]}"
        yield from lines


@pytest.mark.parametrize("kind", ALL)
def test_a_damaged_file_is_named_or_gives_the_same_result(
    forkserver: ForkServerContext, kind: str, tmp_path: Path
) -> None:
    number = max(1, NUM_FILES // len(ALL))
    allowed = {"same", "named", *(["told"] * (kind in TEXTS)), *(["different"] * (kind in FOREIGN))}

    found = list(outcomes(forkserver, kind, tmp_path, number))

    read = [line for line in found if not line.startswith("memory")]
    count = Counter(line.split(maxsplit=2)[2] for line in read)
    logging.getLogger("damaged").info("%s: %s %s", kind, dict(count), found[-1])
    assert [line for line in read if line.split(maxsplit=2)[2] not in allowed] == []
    assert len(read) == number
    assert all(int(line.split()[1]) < ROOM for line in found if line.startswith("memory"))
