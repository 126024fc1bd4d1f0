"""Seconds per 100,000 files to list a folder of classes, beside torchvision's ImageFolder.

Run: python -m benchmarks.listing [FILES]
"""

import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from torchvision.datasets import ImageFolder

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions

NUM_CLASSES = 100
REPEATS = 3


def make_files(root: Path, num_files: int) -> None:
    """Fills `root` with class folders of tiny files."""
    for label in range(NUM_CLASSES):
        (root / f"class{label:03}").mkdir()
    for number in range(num_files):
        (root / f"class{number % NUM_CLASSES:03}" / f"{number:08}.jpg").write_bytes(b"x")


def seconds(work: Callable[[], object]) -> float:
    """Best of a few runs, as other work on the computer can only slow one down."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Makes the files, times both, prints one line each."""
    num_files = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        make_files(Path(folder), num_files)
        per = 100_000 / num_files
        ours = seconds(lambda: open_dataset(folder, DatasetOptions())) * per
        theirs = seconds(lambda: ImageFolder(folder)) * per
    print(f"{num_files:,} files in {NUM_CLASSES} classes, seconds per 100,000, best of {REPEATS}")
    print(f"difficulty, with ids, sizes and fingerprint  {ours:6.2f}")
    print(f"torchvision ImageFolder, paths only          {theirs:6.2f}")


if __name__ == "__main__":
    main()
