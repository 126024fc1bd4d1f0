"""What a person at a terminal sees while images are read."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


def run_at_a_terminal(command: Path, *arguments: object) -> str:
    """Runs the command with a terminal as its standard error; gives what the terminal showed."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    with subprocess.Popen(  # noqa: S603 - our own command
        [str(command), *map(str, arguments)],
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env=environment,
    ):
        os.close(theirs)
        shown = b"".join(read_until_closed(ours))
    os.close(ours)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def read_until_closed(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 65536):
            yield data
    except OSError:  # Linux's way to say that nobody holds the other end any more
        return


@pytest.mark.slow
def test_a_terminal_shows_the_count_the_rate_the_time_left_and_the_bad_images(
    command: Path, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    (few_photos / "cat" / "003.png").write_bytes(b"")
    words = ("extract", few_photos, "--out", store, *builtin, "--shard-size", 5)

    shown = run_at_a_terminal(command, *words)
    (store / "part-00002.parquet").unlink()
    shown_again = run_at_a_terminal(command, *words)

    last = [line for line in re.split(r"[\r\n]+", shown) if line.startswith("images")][-1]
    assert re.search(r" 20/20 +\S+/s +0:00:\d\d +left +0:00:00 +bad 1", last)
    assert "resuming" not in shown
    assert "resuming: 15 of 20 images were done before" in shown_again
