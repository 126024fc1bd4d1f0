"""What a person at a terminal sees while images are read."""

import os
import re
from collections.abc import Callable, Iterator
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest

ForkCommand = Callable[..., ForkServerProcess]


def run_at_a_terminal(fork_command: ForkCommand, *arguments: object) -> str:
    """Runs the command with a terminal as its standard error; gives what the terminal showed."""
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120"}
    process = fork_command(*arguments, environment=environment, errors=os.ttyname(theirs))
    # Once something is shown, the command holds the other end too.
    shown = os.read(ours, 65536)
    os.close(theirs)
    shown += b"".join(read_until_closed(ours))
    os.close(ours)
    process.join()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.decode())


def read_until_closed(terminal: int) -> Iterator[bytes]:
    try:
        while data := os.read(terminal, 65536):
            yield data
    except OSError:  # Linux's way to say that nobody holds the other end any more
        return


@pytest.mark.slow
def test_a_terminal_shows_the_count_the_rate_the_time_left_and_the_bad_images(
    fork_command: ForkCommand, few_photos: Path, tmp_path: Path, builtin: tuple[str, ...]
) -> None:
    store = tmp_path / "store"
    (few_photos / "cat" / "003.png").write_bytes(b"")
    words = ("extract", few_photos, "--out", store, *builtin, "--shard-size", 5)

    shown = run_at_a_terminal(fork_command, *words)
    (store / "part-00002.arrow").unlink()
    shown_again = run_at_a_terminal(fork_command, *words)

    last = [line for line in re.split(r"[\r\n]+", shown) if line.startswith("images")][-1]
    assert re.search(r" 20/20 +\S+/s +0:00:\d\d +left +0:00:00 +bad 1", last)
    assert "resuming" not in shown
    assert "resuming: 15 of 20 images were done before" in shown_again
