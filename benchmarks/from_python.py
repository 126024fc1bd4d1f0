"""`ds.score` on arrays in memory beside `difficulty score STORE`, both of `rmd` alone.

    TMPDIR=/dev/shm python -m benchmarks.from_python [--sizes small,medium,large] [--rounds 5]

Both make all columns of a score file with `--scorers rmd`. Every run is a process of its own, in
which the call is timed after a first call; the two take turns. The processes of `ds.score` have
imported NumPy and SciPy before this project, as notebooks do; those of the command select kernels
of OpenBLAS first. The store is read from TMPDIR, and the command also writes its score file there.
Core-seconds count the work of all threads, which other programs on the machine disturb less than
the time on the clock.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.fit_and_score import SIZES, make_features
from benchmarks.machine import machine
from difficulty_service.base.process_setup import enable_avx512_kernels

METHODS = ("difficulty score STORE", "ds.score")
CALLS = 5


def write_store(folder: Path) -> None:
    """The features of `make_features` as a feature store, beside the arrays."""
    from difficulty_service.features.shard import ShardTable
    from difficulty_service.features.store import create_store
    from difficulty_service.interface.arrays import read_arrays

    features, labels = np.load(folder / "features.npy"), np.load(folder / "labels.npy")
    source = read_arrays(features, labels, None)
    store = create_store(folder / "store", source.description)
    for shard in range(source.num_shards):
        opened = source.open_shard(shard)
        ids = opened.sample_ids.to_pylist()
        store.write_shard(shard, ShardTable(ids, opened.labels, opened.runs, opened.features()), [])


def call_command(folder: Path) -> None:
    """What the command does between its start-up and its output."""
    from difficulty_service.features.store import open_store
    from difficulty_service.scoring.pipeline import ScoreRequest, score_features
    from difficulty_service.settings.options import ScoringOptions

    request = ScoreRequest(folder / "scores.parquet", ScoringOptions(scorers=("rmd",)))
    score_features(open_store(folder / "store"), request)


def time_calls(method: str, folder: Path) -> dict[str, float]:
    """The fastest of some calls in this process, in seconds and in core-seconds."""
    call: Callable[[], object]
    if method == METHODS[0]:
        call = partial(call_command, folder)
    else:
        import scipy.linalg  # noqa: F401 - before this project

        import difficulty_service as ds

        features, labels = np.load(folder / "features.npy"), np.load(folder / "labels.npy")
        call = partial(ds.score, features, labels, scorers=("rmd",))
    call()
    timed = []
    for _ in range(CALLS):
        wall, cores = time.perf_counter(), time.process_time()
        call()
        timed.append((time.perf_counter() - wall, time.process_time() - cores))
    seconds, core_seconds = (min(column) for column in zip(*timed, strict=True))
    return {"seconds": seconds, "core_seconds": core_seconds}


def compare(name: str, rounds: int) -> None:
    """Prints a line for each method."""
    runs: dict[str, list[dict[str, float]]] = {method: [] for method in METHODS}
    os.environ.pop("OPENBLAS_CORETYPE", None)
    environments = {method: dict(os.environ) for method in METHODS}
    kernel = enable_avx512_kernels()
    if kernel is not None:  # as the command has it before NumPy is imported
        environments[METHODS[0]] = {**os.environ, "OPENBLAS_CORETYPE": kernel}
    with tempfile.TemporaryDirectory() as folder:
        make_features(Path(folder), *SIZES[name])
        write_store(Path(folder))
        for _ in range(rounds):
            for method in METHODS:
                program = [sys.executable, "-m", "benchmarks.from_python"]
                output = subprocess.check_output(  # noqa: S603
                    [*program, "--child", method, folder], env=environments[method], text=True
                )
                runs[method].append(json.loads(output.splitlines()[-1]))
    print("\n{}: {:,} x {}, {} classes".format(name, *SIZES[name]))
    for unit in ("seconds", "core_seconds"):
        base = statistics.median(run[unit] for run in runs[METHODS[0]])
        for method, measured in runs.items():
            median = statistics.median(run[unit] for run in measured)
            print(f"{method:24}{median:8.3f} {unit:14}{median / base:6.2f} of the command")


def main() -> None:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="small,medium", help="of small, medium, large")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(time_calls(arguments.child[0], Path(arguments.child[1]))))
        return
    print(machine())
    for name in arguments.sizes.split(","):
        compare(name, arguments.rounds)


if __name__ == "__main__":
    main()
