"""Copies across splits: the whole search beside the matrix product that it needs.

    TMPDIR=/dev/shm python -m benchmarks.leaks [--train 1000000] [--test 100000] [--dim 512]

Two feature stores of random vectors are written, and every thousandth sample of the test set is a
copy from the training set with a little noise. The search reads both, as `difficulty leaks` does.
The floor is the bare float32 product of the same size in this process, in blocks of the same size,
half of it before the search and half after it. Memory is the peak of what is not a mapped file,
above what the libraries took.
"""

import argparse
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.machine import machine
from difficulty_service.analyses.leaks.leaks import find_leaks
from difficulty_service.base.process_setup import enable_avx512_kernels
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import ShardTable
from difficulty_service.features.store import create_store
from difficulty_service.scorers.near_copies import ROWS_AT_ONCE
from difficulty_service.scoring.splits import Split

SHARD_ROWS = 4096
COPIED_EVERY = 1000
COSINE = 0.97
SAMPLED_EVERY = 0.05  # seconds


@dataclass(frozen=True)
class Copies:
    """Samples of a set that are copies of others.

    Attributes:
        of: Features that are copied, in turn. Shape (samples, dim).
        every: Distance of the rows that are copies.
        noise: Length of the noise, relative to that of the features; the same for all copies, or
            from 0 up to it for each.
        varies: Whether it is from 0 up to it.
    """

    of: Tensor
    every: int = COPIED_EVERY
    noise: float = 0.1
    varies: bool = False


def write_set(folder: Path, rows: int, dim: int, seed: int, copies: Copies | None = None) -> Split:
    """A store of random features; some rows are copies of others with a little noise."""
    description = {
        "class_names": [str(number) for number in range(10)],
        "num_samples": rows,
        "num_shards": -(-rows // SHARD_ROWS),
        "shard_size": SHARD_ROWS,
        "feature_dim": dim,
        "augment_runs": 0,
        "dataset": folder.name,
        "fingerprint": folder.name,
        "backbone": "benchmark",
    }
    store = create_store(folder, FeatureDescription.of(description))
    generator = torch.Generator().manual_seed(seed)
    for shard in range(store.num_shards):
        first = shard * SHARD_ROWS
        count = min(SHARD_ROWS, rows - first)
        features = torch.randn(count, dim, generator=generator)
        if copies is not None:
            planted = torch.arange(-first % copies.every, count, copies.every)
            originals = copies.of[(first + planted) // copies.every % len(copies.of)]
            noise = torch.rand(len(planted), 1, generator=generator) if copies.varies else 1.0
            features[planted] = originals + copies.noise * noise * features[planted]
        ids = [f"{first + row:08d}.jpg" for row in range(count)]
        labels = torch.randint(10, (count,), generator=generator)
        store.write_shard(shard, ShardTable(ids, labels, torch.zeros(count).long(), features), [])
    return Split(folder.name, store)


def multiply(rows: int, columns: int, dim: int) -> float:
    """Seconds of the bare product of that many rows with that many columns."""
    generator = torch.Generator().manual_seed(0)
    one, other = (torch.randn(ROWS_AT_ONCE, dim, generator=generator) for _ in range(2))
    target = torch.empty(ROWS_AT_ONCE, ROWS_AT_ONCE)
    blocks = rows * columns / ROWS_AT_ONCE**2
    began = time.perf_counter()
    for _ in range(round(blocks)):
        torch.mm(one, other.T, out=target)
    return time.perf_counter() - began


def anonymous_megabytes() -> float:
    """Memory of this process that is not a mapped file."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def main() -> None:
    """Prints a line of the sizes, the seconds, their ratio to the floor and the memory."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--train", type=int, default=1_000_000)
    parser.add_argument("--test", type=int, default=100_000)
    parser.add_argument("--dim", type=int, default=512)
    arguments = parser.parse_args()
    enable_avx512_kernels()
    print(machine())
    with tempfile.TemporaryDirectory() as folder:
        train = write_set(Path(folder) / "train", arguments.train, arguments.dim, 0)
        copied = train.source.open_shard(0).features().clone()
        test = write_set(Path(folder) / "test", arguments.test, arguments.dim, 1, Copies(copied))
        multiply(ROWS_AT_ONCE, 10 * ROWS_AT_ONCE, arguments.dim)  # starts the threads
        half = arguments.train // 2
        floor = multiply(half, arguments.test, arguments.dim)
        before, done = anonymous_megabytes(), threading.Event()
        peak = [before]

        def watch() -> None:
            while not done.wait(SAMPLED_EVERY):
                peak[0] = max(peak[0], anonymous_megabytes())

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        began = time.perf_counter()
        (found,) = find_leaks(train, [test], COSINE, search="exact").tests
        seconds = time.perf_counter() - began
        done.set()
        watcher.join()
        floor += multiply(half, arguments.test, arguments.dim)
        began = time.perf_counter()
        find_leaks(train, [test], None)
        exact = time.perf_counter() - began
    planted = -(-arguments.test // COPIED_EVERY)
    print(
        f"{arguments.train:,} x {arguments.dim} against {arguments.test:,}: {seconds:.1f} s, "
        f"{seconds / floor:.2f} times the floor of {floor:.1f} s, {peak[0] - before:.0f} MB; "
        f"{found.copies:,} of {planted:,} planted copies; exact copies only: {exact:.1f} s"
    )


if __name__ == "__main__":
    main()
