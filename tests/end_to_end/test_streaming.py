"""Fitting and scoring take the same memory, however many samples there are."""

import ctypes
import sys
import threading
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pyarrow as pa
import pytest
import torch

from difficulty_service.base.process_setup import keep_freed_memory
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import FeatureStore, create_store, open_store
from difficulty_service.scores.file import read_scores
from difficulty_service.scoring.pipeline import ScoreRequest, score_features

ARENA_MAX = -8  # of mallopt in malloc.h

DIM, CLASSES, SHARD_ROWS = 32, 10, 4096
FEW, MANY = 24, 120  # shards
BOUND_MB = 30
"""Ids of the additional samples alone would take 45, and their scores 25.

Hashes of the features, by which copies are found, take 8 bytes for each, and sorting them as much.
"""


def anonymous_megabytes() -> float:
    """What this process holds in memory that is no mapped file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def measure(folder: Path) -> None:
    """Fits and scores; writes into `peak` how many megabytes that took."""
    keep_freed_memory()
    ctypes.CDLL(None).mallopt(ARENA_MAX, 1)
    pa.set_memory_pool(pa.system_memory_pool())
    store = open_store(folder)
    before, done = anonymous_megabytes(), threading.Event()
    peak = [before]

    def watch() -> None:
        while not done.wait(0.01):
            peak.append(max(peak.pop(), anonymous_megabytes()))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    score_features(store, ScoreRequest(folder / "s.parquet"))
    done.set()
    watcher.join()
    (folder / "peak").write_text(str(peak[0] - before))


def make_store(folder: Path, shards: int) -> FeatureStore:
    """Shards with the same ids and with features that differ by a factor."""
    description = {
        "class_names": [f"class {index}" for index in range(CLASSES)],
        "num_shards": shards,
        "shard_size": SHARD_ROWS,
        "num_samples": shards * SHARD_ROWS,
        "augment_runs": 0,
        "dataset": "links",
        "fingerprint": "f",
        "seed": 0,
    }
    store = create_store(folder, FeatureDescription.of(description))
    labels = torch.arange(SHARD_ROWS) % CLASSES
    features = torch.randn(SHARD_ROWS, DIM) + torch.randn(CLASSES, DIM)[labels]
    ids = [f"photographs/{row:0100d}.jpeg" for row in range(SHARD_ROWS)]
    for shard in range(shards):
        scaled = features * (1 + shard / 1000)
        store.write_shard(shard, ShardTable(ids, labels, torch.zeros_like(labels), scaled), [])
    return store


def peak_of(forkserver: ForkServerContext, store: FeatureStore) -> float:
    """Megabytes that a process of its own takes for fitting and scoring."""
    process = forkserver.Process(target=measure, args=(store.folder,))
    process.start()
    process.join()
    return float((store.folder / "peak").read_text())


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_samples(
    forkserver: ForkServerContext, tmp_path: Path
) -> None:
    few, many = make_store(tmp_path / "few", FEW), make_store(tmp_path / "many", MANY)

    # Once more if need be: how far threads run ahead of each other is chance.
    growths = (peak_of(forkserver, many) - peak_of(forkserver, few) for _ in range(2))

    assert any(growth < BOUND_MB for growth in growths)
    assert len(read_scores(many.folder / "s.parquet", ["rmd"]).table) == MANY * SHARD_ROWS
