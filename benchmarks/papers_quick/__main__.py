"""Runs every row of docs/papers.md in a reduced form: few samples, one epoch, the same commands.

    make papers-quick
    python -m benchmarks.papers_quick --only focal-cifar10

A row that succeeded is not run again, unless its commands are others by now. Each has a folder in
runs/papers-quick with what its commands wrote and printed. What comes out is too small to be
compared with a paper; it shows that the commands of the page run to their end. As many rows run at
once as there are processors, and their commands in processes that are forked where torch is loaded,
which takes as long as most of them.
"""

import argparse
import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TextIO

from benchmarks.papers_quick.processes import call
from benchmarks.papers_quick.rows import ROWS, Row
from benchmarks.papers_quick.small_data import prepare, taken
from benchmarks.real_data import shared_folder, skipped
from difficulty_service.base.threads import num_workers

DONE, LOG = "done", "log.txt"
Call = Callable[[str, Sequence[str], TextIO], int | None]
"""Runs a module with some words, which prints into an open file; its exit code."""


def main() -> None:
    """Runs the rows that have not succeeded yet, and prints one line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only", metavar="ROW", action="append", choices=[row.name for row in ROWS]
    )
    parser.add_argument("--folder", type=Path, default=Path("runs/papers-quick"))
    parser.add_argument("--jobs", type=int, default=num_workers(), help="rows that run at once")
    arguments = parser.parse_args()
    shared = shared_folder()
    if not (shared / "data/cifar10_test.parquet").exists():
        sys.exit(skipped("CIFAR-10"))
    places = prepare(shared, arguments.folder)
    # Processes with few threads each do more than threads that wait for each other.
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, num_workers() // arguments.jobs)))
    chosen = [row for row in ROWS if not arguments.only or row.name in arguments.only]
    with ThreadPoolExecutor(arguments.jobs) as threads:
        succeeded = threads.map(lambda row: run(row, arguments.folder / row.name, places), chosen)
        failed = [row.name for row, ok in zip(chosen, succeeded, strict=True) if not ok]
    if failed:
        sys.exit(f"{len(failed)} failed: {', '.join(failed)}; see {LOG} in the folder of each")


def run(row: Row, folder: Path, places: dict[str, str], call: Call = call) -> bool:
    """Runs the commands of a row until one fails.

    Args:
        row: The row.
        folder: Folder for what its commands write.
        places: Locations of data by the names that commands have for them.
        call: What runs a module.

    Returns:
        Whether all succeeded, now or before.
    """
    done = folder / DONE
    commands = "".join(f"{each}\n" for each in row.commands)
    if done.exists() and done.read_text() == commands:
        print(f"{row.name:24} ok, done before", flush=True)
        return True
    # No command goes on with what an interrupted one has left.
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    began = time.monotonic()
    with (folder / LOG).open("a") as log:
        succeeded = all(
            _succeeds(command.format(out=folder, **places), log, call) for command in row.commands
        )
    outcome = "ok" if succeeded else "failed"
    print(
        f"{row.name:24} {outcome}, {time.monotonic() - began:.0f} s, "
        f"of {taken(row.commands) or 'no data'}",
        flush=True,
    )
    if succeeded:
        done.write_text(commands)
    return succeeded


def _succeeds(command: str, log: TextIO, call: Call) -> bool:
    is_study = command.startswith("benchmarks.")
    print(f"$ {'python -m' if is_study else 'difficulty'} {command}", file=log, flush=True)
    words = shlex.split(command)
    module = words.pop(0) if is_study else "difficulty_service"
    return call(module, words, log) == 0


if __name__ == "__main__":
    main()
