"""A second run after one label was mended, beside the first run on the same images.

DIFFICULTY_SHARED=FOLDER python -m benchmarks.fix_and_go_on

The images are those of `data/cifar10_train_*.parquet` in that folder: once as files in a folder per
class, of which one is moved, and once as a table, of which one label is changed. Each run is
`difficulty score` with the built-in encoder in a process of its own, start-up and statistics
included.
"""

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.real_data import shared_folder

SHARED = shared_folder()
ROWS_PER_GROUP = 10_000


def main() -> None:
    """Prints the seconds of all runs and the ratio of the second to the first."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--limit", type=int, default=50_000, help="Number of images.")
    arguments = parser.parse_args()
    tables = sorted((SHARED / "data").glob("cifar10_train_*.parquet"))
    rows = pa.concat_tables(pq.read_table(file, columns=["image", "label"]) for file in tables)
    rows = rows.slice(0, arguments.limit)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for kind, run in (("folder", time_folder), ("table", time_table)):
            first, second = run(folder, rows)
            for name_of_run, (seconds, used) in (("first", first), ("second", second)):
                print(f"{kind}, {name_of_run} run: {seconds:.1f} s, {used:.0f} core-seconds")
            print(f"{kind}: the second run takes {second[0] / first[0]:.1%} of the first")


Times = tuple[float, float]
"""Seconds and core-seconds of a process."""


def time_folder(folder: Path, rows: pa.Table) -> Iterator[Times]:
    """Runs before and after a file has moved to another class."""
    photos = folder / "photos"
    for number, row in enumerate(rows.to_pylist()):
        path = photos / str(row["label"]) / f"{number:06d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(row["image"])
    yield time_score(photos, folder / "folder.parquet")
    moved = min((photos / "3").iterdir())
    moved.rename(photos / "5" / moved.name)
    yield time_score(photos, folder / "folder.parquet")


def time_table(folder: Path, rows: pa.Table) -> Iterator[Times]:
    """Runs before and after a label of the table has changed."""
    table = folder / "table.parquet"
    pq.write_table(rows, table, row_group_size=ROWS_PER_GROUP)
    yield time_score(table, folder / "scores.parquet")
    labels = rows["label"].to_pylist()
    labels[0] = 9 - labels[0]
    mended = rows.set_column(1, "label", pa.array(labels))
    pq.write_table(mended, table, row_group_size=ROWS_PER_GROUP)
    yield time_score(table, folder / "scores.parquet")


def time_score(dataset: Path, out: Path) -> Times:
    """Times `difficulty score --scorers rmd`."""
    words = ["score", str(dataset), "--backbone", "builtin", "--scorers", "rmd", "--out", str(out)]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - our own command
        [sys.executable, "-m", "difficulty_service", *words],
        env=os.environ,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    seconds = time.perf_counter() - began
    print(*(line for line in done.stdout.splitlines() if "features" in line), sep="\n")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
    return seconds, used


if __name__ == "__main__":
    main()
