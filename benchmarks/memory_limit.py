"""What scoring photographs takes of a limit of memory, as in a container.

Run as root: python -m benchmarks.memory_limit [--photographs 1000] [--megabytes 1024 760]

A command scores a folder by the network of the package for photographs, each time anew, in control
groups of version 1 with limits of memory. What the files on the disk take in memory is no part of
it: the system gives that up where memory is wanted.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.control_groups import control_group, within
from benchmarks.machine import machine
from benchmarks.photographs import write_photographs

MB = 1 << 20
POLL_SECONDS = 0.05


def peak_of(command: Sequence[str], group: Path) -> tuple[int, int]:
    """Exit code of a command in a group, and the most bytes in memory that are no file's."""
    most = 0
    with subprocess.Popen([*within(group), *command], stdout=subprocess.DEVNULL) as run:  # noqa: S603
        while run.poll() is None:
            stat = (group / "memory.stat").read_text()
            most = max(most, int(re.findall(r"^rss (\d+)$", stat, re.MULTILINE)[0]))
            time.sleep(POLL_SECONDS)
    return run.returncode, most


def main() -> None:
    """Prints the peak and the time for each limit."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photographs", type=int, default=1000)
    parser.add_argument("--megabytes", type=int, nargs="+", default=[1024, 760])
    options = parser.parse_args()
    os.environ["HF_HUB_OFFLINE"] = "1"
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "photos")
        write_photographs(folder, options.photographs)
        command = [sys.executable, "-m", "difficulty_service", "score", str(folder)]
        command += ["--backbone", "builtin-photos", "--no-resume", "--quiet"]
        for limit in options.megabytes:
            with control_group("memory", {"memory.limit_in_bytes": limit * MB}) as group:
                if group is None:
                    sys.exit("no control group of version 1 can be made here")
                began = time.perf_counter()
                code, most = peak_of([*command, "--out", f"{name}/scores.parquet"], group)
                seconds = time.perf_counter() - began
            print(f"limit {limit} MB: exit code {code}, at most {most // MB} MB, {seconds:.0f} s")


if __name__ == "__main__":
    main()
