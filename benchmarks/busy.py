"""What scoring photographs costs beside other work, and with a quota of one core.

Run: python -m benchmarks.busy [--photographs 300] [--rounds 3]

A command scores a folder, each time anew: alone, beside as many busy loops as there are cores and
one more, and the same without the setting by which threads that wait for each other sleep. The fair
share of the run is that of its threads among all that compute. Where control groups of version 1
can be made, as by root, the command also runs with the time of one core: it should then take twice
as long as with two.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.control_groups import control_group, within
from benchmarks.machine import machine
from benchmarks.photographs import write_photographs
from difficulty_service.base.threads import num_workers

LOOP = "while True: pass"
SPINNING = {"OMP_WAIT_POLICY": "ACTIVE", "OPENBLAS_THREAD_TIMEOUT": "26"}
PERIOD = 100_000  # microseconds
ONE_CORE = {"cpu.cfs_period_us": PERIOD, "cpu.cfs_quota_us": PERIOD}


@dataclass(frozen=True)
class Cost:
    """Of one run, in seconds."""

    wall: float
    cores: float


def run(folder: Path, before: Sequence[str] = (), **settings: str) -> Cost:
    """Scores the photographs of a folder, with words before the command."""
    with tempfile.TemporaryDirectory() as out:
        command = [sys.executable, "-m", "difficulty_service", "score", str(folder)]
        used, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run(  # noqa: S603 - our own command
            [*before, *command, "--no-resume", "--out", f"{out}/scores.parquet"],
            env=os.environ | {"HF_HUB_OFFLINE": "1"} | settings,
            check=True,
            capture_output=True,
        )
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return Cost(wall, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)


@contextmanager
def busy_loops(number: int) -> Iterator[None]:
    """Processes that do nothing but take the time of cores."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(number)]  # noqa: S603
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> None:
    """Prints the costs, medians of some rounds, and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--photographs", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    loops, threads = num_workers() + 1, num_workers()
    costs: dict[str, list[Cost]] = {}
    print(machine())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name, "photos")
        write_photographs(folder, options.photographs)
        run(folder)  # what is read from the disk once
        for _ in range(options.rounds):
            costs.setdefault("alone", []).append(run(folder))
            with busy_loops(loops):
                costs.setdefault("beside busy loops", []).append(run(folder))
                costs.setdefault("the same, spinning", []).append(run(folder, **SPINNING))
            with control_group("cpu", ONE_CORE) as group:
                if group is not None:
                    costs.setdefault("one core's time", []).append(run(folder, within(group)))
    middle = {
        name: Cost(
            statistics.median(each.wall for each in all_),
            statistics.median(each.cores for each in all_),
        )
        for name, all_ in costs.items()
    }
    alone = middle["alone"]
    fair = alone.cores / (num_workers() * threads / (threads + loops))
    for name, cost in middle.items():
        beside = name.startswith(("beside", "the same"))
        share = f"; {cost.wall / fair:.2f} of a fair share" if beside else ""
        print(
            f"{name}: {cost.wall:.1f} s, {cost.cores:.1f} core-seconds; "
            f"{cost.wall / alone.wall:.2f} and {cost.cores / alone.cores:.2f} of alone{share}"
        )


if __name__ == "__main__":
    main()
