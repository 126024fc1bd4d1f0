"""Fit and score from Parquet, shard by shard: time over the machine's floor, and memory, by rows.

Run: python -m benchmarks.streamed [--rows 50000 200000 1281167 10000000] [--rounds 3] [--peer]
     [--dim 512] [--kinds rmd file]

Features in 1,000 classes lie in a feature store, as `difficulty extract` writes it, under TMPDIR,
which needs 4 bytes for each number and 100 for each row of scores. Every run is a process of its
own, which reads all files once before the clock starts; what memory does not hold comes from the
disk then. The kinds of run take turns.

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
import shutil
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
from torch import Tensor

from benchmarks.fit_and_score import FASTEST_PEER as PEER
from benchmarks.fit_and_score import gemm_rate, pytorch_ood
from benchmarks.machine import machine
from difficulty_service.base.process_setup import enable_avx512_kernels, keep_freed_memory
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import FeatureStore, create_store, open_store
from difficulty_service.gaussians.batches import with_labels
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.products import Workspace, one_thread_per_product
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scoring.fit_store import ShardSlice, StoreBatches, fit_store
from difficulty_service.scoring.pipeline import ScoreRequest, score_features
from difficulty_service.settings.options import ScoringOptions

CLASSES, SHARD_ROWS = 1000, 4096
PEER_ROWS = 1_281_167
SAMPLED_EVERY = 0.01  # seconds
KINDS = ("rmd", "file")


def description(rows: int, dim: int, classes: int) -> dict[str, object]:
    """Description of a store of `rows` rows of `dim` numbers."""
    same = ("backbone", "weights_sha256", "features", "precision", "fingerprint")
    return dict.fromkeys((*same, "dataset", "decoder"), "benchmark") | {
        "class_names": [str(number) for number in range(classes)],
        "num_samples": rows,
        "num_shards": -(-rows // SHARD_ROWS),
        "shard_size": SHARD_ROWS,
        "feature_dim": dim,
        "preprocessing": {},
        "max_pixels": 0,
        "augment_runs": 0,
        "seed": 0,
        "package_version": "benchmark",
    }


def make_store(folder: Path, rows: int, dim: int, classes: int = CLASSES) -> FeatureStore:
    """A store of random rows."""
    store = create_store(folder, FeatureDescription.of(description(rows, dim, classes)))
    generator = np.random.default_rng(0)
    rotation = np.linalg.qr(generator.standard_normal((dim, dim)))[0]
    mixing = (rotation * np.geomspace(1, 0.05, dim)).astype(np.float32).T
    means = generator.standard_normal((classes, dim), dtype=np.float32) @ mixing
    for shard in range(store.num_shards):
        count = min(SHARD_ROWS, rows - shard * SHARD_ROWS)
        labels = generator.integers(0, classes, count)
        noise = generator.standard_normal((count, dim), dtype=np.float32)
        features = noise @ mixing + means[labels]
        ids = [f"{shard * SHARD_ROWS + row:08d}.jpg" for row in range(count)]
        zeros = torch.zeros(count, dtype=torch.int64)
        table = ShardTable(ids, torch.from_numpy(labels), zeros, torch.from_numpy(features))
        store.write_shard(shard, table, [])
    return store


def anonymous_kilobytes() -> int:
    """Memory of this process that is not a mapped file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def in_child(work: Callable[[], object]) -> None:
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
    source, work = StoreBatches(store), Workspace()

    def rmd_of_batch(batch: Sequence[ShardSlice]) -> Tensor:
        blocks = with_labels(*source.read(batch, work))
        return torch.cat([scorer.rmd_of_block(*rows, work) for rows in blocks])

    with one_thread_per_product():
        return torch.cat(list(map_in_order(rmd_of_batch, source.batches(), num_workers())))


def peer(folder: Path) -> Callable[[], object]:
    """The peer's RMD, once all features are in memory."""
    store = open_store(folder)
    shards = [store.read_shard(shard) for shard in range(store.num_shards)]
    features = torch.cat([each.features for each in shards]).numpy()
    labels = torch.cat([each.labels for each in shards]).numpy()
    del shards
    return pytorch_ood(features, labels, CLASSES)


def work_of(kind: str, folder: Path) -> Callable[[], object]:
    """The run that a kind names."""
    if kind == PEER:
        return peer(folder)
    for file in folder.glob("part-*"):
        file.read_bytes()
    return partial({"rmd": fit_and_rmd, "file": fit_and_write}[kind], folder)


def flops(kind: str, rows: int, dim: int) -> float:
    """Operations that a kind of run cannot do without."""
    rank = min(dim, CLASSES - 1)
    rmd = dim**2 + 2 * dim * rank - rank**2
    return rows * (rmd if kind != "file" else rmd + dim**2 + 2 * CLASSES * rank)


def run_child(kind: str, folder: Path) -> list[float]:
    """Seconds and megabytes of one run in a process of its own; for `rate`, operations a second."""
    command = [sys.executable, "-m", "benchmarks.streamed", "--child", kind, str(folder)]
    output = subprocess.check_output(command, text=True)  # noqa: S603 - this script
    found: list[float] = json.loads(output.splitlines()[-1])
    return found


def measure(store: FeatureStore, kinds: Sequence[str], rounds: int) -> None:
    """Prints a line for each kind of run."""
    rows, dim = store.description.num_samples, store.description.feature_dim or 0
    rates: list[float] = []
    found: dict[str, list[list[float]]] = {kind: [] for kind in kinds}
    for _ in range(rounds):
        rates += run_child("rate", store.folder)
        for kind in kinds:
            found[kind].append(run_child(kind, store.folder))
    for kind, runs in found.items():
        seconds = statistics.median(run[0] for run in runs)
        over_floor = seconds * max(rates) / flops(kind, rows, dim)
        first = found[kinds[0]]
        ratio = statistics.median(run[0] / own[0] for run, own in zip(runs, first, strict=True))
        megabytes = max(run[1] for run in runs)
        print(
            f"{rows:>12,}  {kind:12}{seconds:8.2f} s {over_floor:6.2f} x floor "
            f"{ratio:6.2f} x {kinds[0]} {megabytes:7.0f} MB   ({max(rates) / 1e9:.0f} GFLOP/s)",
            flush=True,
        )


def main() -> None:
    """Measures each number of rows, prints a line for each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="+", default=[50_000, 200_000, PEER_ROWS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
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
    print(machine())
    print(f"rows x {arguments.dim}, {CLASSES} classes, medians of {arguments.rounds} rounds")
    with tempfile.TemporaryDirectory() as temporary:
        for rows in sorted(arguments.rows):
            store = make_store(Path(temporary) / str(rows), rows, arguments.dim)
            with_peer = arguments.peer and rows <= PEER_ROWS
            measure(store, [*arguments.kinds, *([PEER] if with_peer else [])], arguments.rounds)
            shutil.rmtree(store.folder)


if __name__ == "__main__":
    main()
