"""Fit and score from Parquet, part by part: time over the machine's floor, and memory, by rows.

Run: python benchmarks/streamed.py [--rows 50000 200000 1281167 10000000] [--rounds 3]

Features of 512 dimensions in 1,000 classes lie in a feature store, as `difficulty extract` writes
it; beyond 1,281,167 rows its parts are links to the first ones. Each run is a process of its own
that fits Gaussians and scores every row to a score file, as `difficulty score STORE` does. The
floor is the arithmetic that this needs, at the rate of this machine's fastest float32 product on
all cores: N D^2 for the covariance, N (2 D r - r^2) for RMD, and 2 N K r for the distances to
all classes that the columns nearest_label and label_margin ask for. Memory is the peak of what
is not a mapped file, above what the libraries took.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from machine import machine

from difficulty_service.feature_store import FeatureStore, Part, create_store, open_store
from difficulty_service.fitting import FitRequest
from difficulty_service.parallel import num_workers
from difficulty_service.pipeline import fit_store, write_store_scores
from difficulty_service.processor import keep_freed_memory, prefer_wide_kernels

DIM, CLASSES, PART_ROWS = 512, 1000, 4096
DISTINCT_ROWS = 1_281_167
SAMPLED_EVERY = 0.01  # seconds


def description(rows: int) -> dict[str, object]:
    """Of a store of so many rows."""
    same = ("backbone", "weights_sha256", "features", "precision", "mode", "fingerprint")
    return dict.fromkeys((*same, "dataset", "decoder"), "benchmark") | {
        "class_names": [str(number) for number in range(CLASSES)],
        "num_samples": rows,
        "num_shards": -(-rows // PART_ROWS),
        "shard_size": PART_ROWS,
        "feature_dim": DIM,
        "preprocessing": {},
        "max_pixels": 0,
        "augment_runs": 0,
        "seed": 0,
        "package_version": "benchmark",
    }


def make_store(folder: Path, rows: int, distinct: FeatureStore | None) -> FeatureStore:
    """A store of so many rows; where one of distinct rows is given, of links to its parts."""
    store = create_store(folder, description(rows))
    generator = np.random.default_rng(0)
    rotation = np.linalg.qr(generator.standard_normal((DIM, DIM)))[0]
    mixing = (rotation * np.geomspace(1, 0.05, DIM)).astype(np.float32).T
    means = generator.standard_normal((CLASSES, DIM), dtype=np.float32) @ mixing
    for shard in range(store.num_parts):
        if distinct is not None:
            linked = distinct.part_file(shard % (distinct.num_parts - 1))
            store.part_file(shard).hardlink_to(linked)
            continue
        count = min(PART_ROWS, rows - shard * PART_ROWS)
        labels = generator.integers(0, CLASSES, count)
        noise = generator.standard_normal((count, DIM), dtype=np.float32)
        features = noise @ mixing + means[labels]
        ids = [f"{shard * PART_ROWS + row:08d}.jpg" for row in range(count)]
        zeros = torch.zeros(count, dtype=torch.int64)
        part = Part(ids, torch.from_numpy(labels), zeros, torch.from_numpy(features))
        store.write_part(shard, part, [])
    return store


def anonymous_kilobytes() -> int:
    """Memory of this process that is not a mapped file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def in_child(work: Callable[[], None]) -> None:
    """Runs some work once and prints its seconds and the megabytes that it took."""
    before = anonymous_kilobytes()
    peak, stop = [before], threading.Event()

    def watch() -> None:
        while not stop.wait(SAMPLED_EVERY):
            peak.append(max(peak.pop(), anonymous_kilobytes()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    stop.set()
    watcher.join()
    print(json.dumps([seconds, (peak[0] - before) / 1024]))


def streamed(folder: Path) -> Callable[[], None]:
    """What `difficulty score STORE` does."""
    store = open_store(folder)

    def run() -> None:
        gaussians = fit_store(store, FitRequest())
        out = folder / "scores.parquet"
        write_store_scores(store, out, gaussians, dict(store.description), ["rmd"])

    return run


def floor_seconds(rows: int) -> float:
    """Seconds of the products that covariance, scores and margins need, on all cores."""
    rank = min(DIM, CLASSES - 1)
    square = torch.randn(4096, 4096)
    torch.set_num_threads(num_workers())
    times = []
    for _ in range(5):
        began = time.perf_counter()
        np.matmul(square.numpy(), square.numpy())
        times.append(time.perf_counter() - began)
    rate = 2 * 4096**3 / min(times)
    return rows * (DIM**2 + 2 * DIM * rank - rank**2 + 2 * CLASSES * rank) / rate


def run_child(kind: str, folder: Path) -> list[float]:
    """Seconds and megabytes of one run in a process of its own."""
    command = [sys.executable, __file__, "--child", kind, str(folder)]
    output = subprocess.check_output(command, text=True)  # noqa: S603 - this script
    found: list[float] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    """Measures each number of rows, prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 200_000, DISTINCT_ROWS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    prefer_wide_kernels()
    keep_freed_memory()
    if arguments.child:
        in_child(streamed(Path(arguments.child[1])))
        return
    print(f"{machine()}\nrows x {DIM}, {CLASSES} classes, medians of {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as temporary:
        distinct = None
        for rows in sorted(arguments.rows):
            folder = Path(temporary) / str(rows)
            store = make_store(folder, rows, distinct if rows > DISTINCT_ROWS else None)
            distinct = store if rows == DISTINCT_ROWS else distinct
            floors, found = [], []
            for _ in range(arguments.rounds):
                floors.append(floor_seconds(rows))
                found.append(run_child("streamed", folder))
            seconds = statistics.median(run[0] for run in found)
            megabytes = statistics.median(run[1] for run in found)
            ratio = statistics.median(
                run[0] / floor for run, floor in zip(found, floors, strict=True)
            )
            print(
                f"{rows:>12,} rows {seconds:8.2f} s, {ratio:5.2f} times the floor, "
                f"{megabytes:6.0f} MB"
            )


if __name__ == "__main__":
    main()
