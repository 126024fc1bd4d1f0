"""Fit and score from Parquet, part by part: time over the machine's floor, and memory, by rows.

Run: python benchmarks/streamed.py [--rows 50000 200000 1281167 10000000] [--rounds 3] [--peer]

Features of 512 dimensions in 1,000 classes lie in a feature store, as `difficulty extract` writes
it; beyond 1,281,167 rows its parts are links to the first ones. Every run is a process of its own,
which reads all files once before the clock starts; the kinds of run take turns.

- rmd: fits Gaussians and gives RMD alone, which is what the peer is asked for. Floor: the
  arithmetic N D^2 for the covariance and N (2 D r - r^2) for the scores, r = min(D, K - 1).
- file: what `difficulty score STORE --scorers rmd` does, all its columns. Floor: N D^2 more for
  the distance that knows no labels, and 2 N K r for the distances to all classes.
- pytorch-ood, with --peer: its RMD for the own class of features that lie in memory, up to
  1,281,167 rows.

The floor's rate is that of this machine's fastest float32 product, one on each core. Memory is the
peak of what is not a mapped file, above what the libraries took.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from fit_and_score import FASTEST_PEER as PEER
from fit_and_score import gemm_rate, pytorch_ood
from machine import machine
from torch import Tensor

from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.part import Part
from difficulty_service.features.store import FeatureStore, create_store, open_store
from difficulty_service.gaussians.chunks import with_labels
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.products import Workspace, one_thread_per_product
from difficulty_service.options import ScoringOptions
from difficulty_service.pipeline import ScoreRequest, score_features
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scores.fit_store import Piece, StoreChunks, fit_store

DIM, CLASSES, PART_ROWS = 512, 1000, 4096
DISTINCT_ROWS = 1_281_167
SAMPLED_EVERY = 0.01  # seconds


def description(rows: int) -> dict[str, object]:
    """Description of a store of `rows` rows."""
    same = ("backbone", "weights_sha256", "features", "precision", "fingerprint")
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
    """A store of `rows` rows; where a store of distinct rows is given, links to its parts."""
    store = create_store(folder, FeatureDescription.of(description(rows)))
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

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    stop.set()
    watcher.join()
    print(json.dumps([seconds, (peak[0] - before) / 1024]))


def fit_and_write(folder: Path) -> None:
    """What `difficulty score STORE --scorers rmd` does."""
    request = ScoreRequest(folder / "scores.parquet", ScoringOptions(scorers=("rmd",)))
    score_features(open_store(folder), request)


def fit_and_rmd(folder: Path) -> Tensor:
    """RMD of every row of a store, and nothing else."""
    store = open_store(folder)
    scorer = relative_mahalanobis(fit_store(store, FitOptions()).gaussians)
    source, work = StoreChunks(store), Workspace()

    def rmd_of_chunk(chunk: Sequence[Piece]) -> Tensor:
        blocks = with_labels(*source.read(chunk, work))
        return torch.cat([scorer.rmd_of_block(*rows, work) for rows in blocks])

    with one_thread_per_product():
        return torch.cat(list(map_in_order(rmd_of_chunk, source.chunks(), num_workers())))


def peer(folder: Path) -> Callable[[], object]:
    """The peer's RMD, once all features are in memory."""
    store = open_store(folder)
    parts = [store.read_part(shard) for shard in range(store.num_parts)]
    features = torch.cat([part.features for part in parts]).numpy()
    labels = torch.cat([part.labels for part in parts]).numpy()
    del parts
    return pytorch_ood(features, labels, CLASSES)


def work_of(kind: str, folder: Path) -> Callable[[], object]:
    """The run that a kind names."""
    if kind == PEER:
        return peer(folder)
    for file in folder.glob("part-*"):
        file.read_bytes()
    return partial({"rmd": fit_and_rmd, "file": fit_and_write}[kind], folder)


def flops(kind: str, rows: int) -> float:
    """Operations that a kind of run cannot do without."""
    rank = min(DIM, CLASSES - 1)
    rmd = DIM**2 + 2 * DIM * rank - rank**2
    return rows * (rmd if kind != "file" else rmd + DIM**2 + 2 * CLASSES * rank)


def run_child(kind: str, folder: Path) -> list[float]:
    """Seconds and megabytes of one run in a process of its own; for `rate`, operations a second."""
    command = [sys.executable, __file__, "--child", kind, str(folder)]
    output = subprocess.check_output(command, text=True)  # noqa: S603 - this script
    found: list[float] = json.loads(output.splitlines()[-1])
    return found


def measure(rows: int, folder: Path, kinds: list[str], rounds: int) -> None:
    """Prints a line for each kind of run."""
    rates: list[float] = []
    found: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        rates += run_child("rate", folder)
        for kind in kinds:
            found[kind].append(run_child(kind, folder))
    for kind, runs in found.items():
        seconds = statistics.median(run[0] for run in runs)
        over_floor = seconds * max(rates) / flops(kind, rows)
        over_rmd = statistics.median(
            run[0] / own[0] for run, own in zip(runs, found["rmd"], strict=True)
        )
        megabytes = max(run[1] for run in runs)
        print(
            f"{rows:>12,}  {kind:12}{seconds:8.2f} s {over_floor:6.2f} x floor "
            f"{over_rmd:6.2f} x rmd {megabytes:7.0f} MB   ({max(rates) / 1e9:.0f} GFLOP/s)",
            flush=True,
        )


def main() -> None:
    """Measures each number of rows, prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 200_000, DISTINCT_ROWS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peer", action="store_true", help="runs pytorch-ood too")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    os.environ.pop("OPENBLAS_CORETYPE", None)
    enable_avx512_kernels()
    keep_freed_memory()
    if arguments.child:
        kind, folder = arguments.child
        if kind == "rate":
            print(json.dumps([gemm_rate(num_workers())]))
        else:
            in_child(work_of(kind, Path(folder)))
        return
    print(f"{machine()}\nrows x {DIM}, {CLASSES} classes, medians of {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as temporary:
        distinct = None
        for rows in sorted(arguments.rows):
            folder = Path(temporary) / str(rows)
            store = make_store(folder, rows, distinct if rows > DISTINCT_ROWS else None)
            distinct = store if rows == DISTINCT_ROWS else distinct
            with_peer = arguments.peer and rows <= DISTINCT_ROWS
            measure(rows, folder, ["rmd", "file", *([PEER] if with_peer else [])], arguments.rounds)


if __name__ == "__main__":
    main()
