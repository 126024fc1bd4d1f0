"""Core-seconds and memory of `suspicion` and `agree` beside those of RMD, from features on disk.

Run: python -m benchmarks.suspicion [--rows 200000] [--classes 100] [--rounds 3]
     [--scorers rmd rmd,suspicion] [--beside FOLDER]; a million rows need 3 GB of disk.

Features of 512 dimensions lie in a feature store. Each run is the whole command `difficulty score
STORE --scorers ...`, whose files lie in memory; the kinds of run take turns. Core-seconds are those
of the process, which other programs hardly lengthen, and are also given as a multiple of those of
`rmd` in the same round, with the range over the rounds. Memory is the peak of what is not a
mapped file. With a folder of the source of another version, that version runs the same commands in
the same rounds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.streamed import CLASSES, make_store

DIM = 512
KINDS = ("rmd", "rmd,agree", "rmd,suspicion", "rmd,suspicion,agree")
SOURCE = Path(__file__).parent.parent
SAMPLED_EVERY = 0.02  # seconds


@dataclass(frozen=True)
class Cost:
    """Core-seconds and megabytes of a run."""

    seconds: float
    megabytes: float


def anonymous_megabytes(process: int) -> float:
    """Memory of a process that is not a mapped file; 0 where it has ended."""
    try:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("RssAnon")), 0.0)


def cost_of(source: Path, scorers: str, folder: Path) -> Cost:
    """What one command of a version costs."""
    for file in folder.glob("part-*"):
        file.read_bytes()
    command = [sys.executable, "-m", "difficulty_service", "score", str(folder)]
    command += ["--scorers", scorers, "--out", str(folder / "scores.parquet")]
    environment = {**os.environ, "PYTHONPATH": str(source)}
    process = subprocess.Popen(  # noqa: S603 - the versions of this project
        command, cwd=source, env=environment, stdout=subprocess.DEVNULL
    )
    most = 0.0
    while not (ended := os.wait4(process.pid, os.WNOHANG))[0]:
        most = max(most, anonymous_megabytes(process.pid))
        time.sleep(SAMPLED_EVERY)
    _, status, usage = ended
    if status:
        raise SystemExit(f"{' '.join(command)} ended with status {status}")
    return Cost(usage.ru_utime + usage.ru_stime, most)


def ratio(costs: list[Cost], others: list[Cost]) -> str:
    """Median of the ratios of core-seconds in the same rounds, and their range."""
    ratios = [one.seconds / other.seconds for one, other in zip(costs, others, strict=True)]
    return f"{statistics.median(ratios):6.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Prints a line for each kind of run of each version."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--classes", type=int, default=CLASSES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scorers", nargs="+", default=KINDS, help="the first is rmd")
    parser.add_argument("--beside", type=Path, help="folder of the source of another version")
    arguments = parser.parse_args()
    versions = {"this": SOURCE}
    if arguments.beside is not None:
        versions["other"] = arguments.beside.absolute()
    kinds = [(version, scorers) for scorers in arguments.scorers for version in versions]
    costs: dict[tuple[str, str], list[Cost]] = {kind: [] for kind in kinds}
    print(f"{machine()}\n{arguments.rows:,} rows x {DIM}, {arguments.classes} classes", flush=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        make_store(folder, arguments.rows, DIM, arguments.classes)
        for _ in range(arguments.rounds):
            for version, scorers in kinds:
                costs[version, scorers].append(cost_of(versions[version], scorers, folder))
    for (version, scorers), own in costs.items():
        line = f"{version:6}{scorers:20}{statistics.median(each.seconds for each in own):8.2f} s "
        line += f"{max(each.megabytes for each in own):7.0f} MB"
        line += f"  over its rmd {ratio(own, costs[version, arguments.scorers[0]])}"
        if version != "this":
            line += f"  over this version {ratio(own, costs['this', scorers])}"
        print(line)


if __name__ == "__main__":
    main()
