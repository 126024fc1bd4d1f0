"""Fitting and scoring take the same memory, however many samples there are."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.part import Part
from difficulty_service.features.store import FeatureStore, create_store
from difficulty_service.scores.file import read_scores

DIM, CLASSES, PART_ROWS = 32, 10, 4096
FEW, MANY = 12, 240  # parts
BOUND_MB = 48
"""Ids and scores of the additional samples alone would take more than a hundred.

Hashes of the features, by which copies are found, take 8 bytes for each, and sorting them as much.
"""

CHILD = """
import json, sys, threading
from pathlib import Path

from difficulty_service.features.store import open_store
from difficulty_service.pipeline import ScoreRequest, score_features
from difficulty_service.base.process_setup import keep_freed_memory

def megabytes():  # of what is no mapped file
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024

keep_freed_memory()
store = open_store(Path(sys.argv[1]))
before, done = megabytes(), threading.Event()
peak = [before]

def watch():
    while not done.wait(0.01):
        peak.append(max(peak.pop(), megabytes()))

watcher = threading.Thread(target=watch, daemon=True)
watcher.start()
score_features(store, ScoreRequest(store.folder / "s.parquet"))
done.set()
watcher.join()
print(json.dumps(peak[0] - before))
"""


def make_store(folder: Path, parts: int) -> FeatureStore:
    """Parts with the same ids and with features that differ by a factor."""
    description = {
        "class_names": [f"class {index}" for index in range(CLASSES)],
        "num_shards": parts,
        "shard_size": PART_ROWS,
        "num_samples": parts * PART_ROWS,
        "augment_runs": 0,
        "dataset": "links",
        "fingerprint": "f",
        "seed": 0,
    }
    store = create_store(folder, FeatureDescription.of(description))
    labels = torch.arange(PART_ROWS) % CLASSES
    features = torch.randn(PART_ROWS, DIM) + torch.randn(CLASSES, DIM)[labels]
    ids = [f"photographs/{row:012d}.jpeg" for row in range(PART_ROWS)]
    for shard in range(parts):
        scaled = features * (1 + shard / 1000)
        store.write_part(shard, Part(ids, labels, torch.zeros_like(labels), scaled), [])
    return store


def peak_of(store: FeatureStore) -> float:
    """Megabytes that a process of its own takes for fitting and scoring."""
    words = [sys.executable, "-c", CHILD, str(store.folder)]
    output = subprocess.check_output(words, text=True)  # noqa: S603 - our own script
    return float(json.loads(output))


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow_with_the_number_of_samples(tmp_path: Path) -> None:
    few, many = make_store(tmp_path / "few", FEW), make_store(tmp_path / "many", MANY)

    growth = peak_of(many) - peak_of(few)

    assert len(read_scores(many.folder / "s.parquet", ["rmd"]).table) == MANY * PART_ROWS
    assert growth < BOUND_MB
