"""Time and memory of `suspicion` and `agree` beside those of RMD, from features on disk.

Run: python -m benchmarks.suspicion [--rows 100000] [--rounds 3] [--scorers rmd rmd,suspicion]; a
million rows need 3 GB of disk.

Features of 512 dimensions in 1,000 classes lie in a feature store. Each run does what
`difficulty score STORE --scorers ...` does, in a process of its own, which reads all files once
before the clock starts; the kinds of run take turns. A time is also given as a multiple of that of
`rmd` in the same round, as is that of the processor, which other programs hardly lengthen. Memory
is the peak of what is not a mapped file, above what the libraries took.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.machine import machine
from benchmarks.streamed import CLASSES, in_child, make_store
from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory
from difficulty_service.features.store import open_store
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions

DIM = 512
KINDS = ("rmd", "rmd,agree", "rmd,suspicion", "rmd,suspicion,agree")


def score(scorers: str, folder: Path) -> None:
    """Writes a score file with the columns of some scorers."""
    request = ScoreRequest(folder / "scores.parquet", ScoringOptions(scorers=[scorers]))
    score_features(open_store(folder), request)


def run_child(scorers: str, folder: Path) -> tuple[float, float, float]:
    """Seconds, megabytes and processor seconds of one run in a process of its own."""
    command = [sys.executable, "-m", "benchmarks.suspicion", "--child", scorers, str(folder)]
    output = subprocess.check_output(command, text=True)  # noqa: S603 - this script
    (seconds, megabytes), processor = map(json.loads, output.splitlines()[-2:])
    return seconds, megabytes, processor


def main() -> None:
    """Prints a line for each kind of run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scorers", nargs="+", default=KINDS, help="the first is rmd")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.pop("OPENBLAS_CORETYPE", None)
    enable_avx512_kernels()
    keep_freed_memory()
    if arguments.child:
        scorers, folder = arguments.child
        for file in Path(folder).glob("part-*"):
            file.read_bytes()
        began = time.process_time()
        in_child(partial(score, scorers, Path(folder)))
        print(time.process_time() - began)
        return
    print(f"{machine()}\n{arguments.rows:,} rows x {DIM}, {CLASSES} classes")
    found: dict[str, list[tuple[float, float, float]]] = {kind: [] for kind in arguments.scorers}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "store"
        make_store(folder, arguments.rows, DIM)
        for _ in range(arguments.rounds):
            for kind in arguments.scorers:
                found[kind].append(run_child(kind, folder))
    for kind, runs in found.items():
        elapsed, processor = (
            statistics.median(
                own[at] / rmd[at] for own, rmd in zip(runs, found["rmd"], strict=True)
            )
            for at in (0, 2)
        )
        print(
            f"{kind:20}{statistics.median(run[0] for run in runs):8.2f} s {elapsed:6.2f} x rmd "
            f"{statistics.median(run[2] for run in runs):8.2f} s of processor {processor:6.2f} x "
            f"{max(run[1] for run in runs):7.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
