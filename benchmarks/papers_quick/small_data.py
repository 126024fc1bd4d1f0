"""Small tables of the data sets of the papers, cut from the real ones."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

TRAINING, TEST = 300, 120
SOURCES = {
    "cifar10": ("cifar10_train_1", TRAINING),
    "cifar10_test": ("cifar10_test", TEST),
    "cifar100": ("cifar100_train_1", 2 * TRAINING),
    "cifar100_test": ("cifar100_test", TEST),
    "tiny": ("tiny_imagenet_val2000", 3 * TRAINING),
    "mnist": ("mnist_ood2000", TEST),
    "news": ("newsgroups20_bydate", 4 * TRAINING),
    "sst": ("sst", 2 * TRAINING),
}
"""Table and number of rows of each."""


def prepare(shared: Path, folder: Path) -> dict[str, str]:
    """Writes the tables that are missing.

    Args:
        shared: Folder of the real data and weights.
        folder: Folder for the small ones.

    Returns:
        Locations by name: the tables, and `mobilenet`, weights.
    """
    small = folder / "data"
    small.mkdir(parents=True, exist_ok=True)
    found = {}
    for name, (source, rows) in SOURCES.items():
        path = small / f"{name}.parquet"
        if not path.exists():
            table = pq.read_table(shared / "data" / f"{source}.parquet")
            pq.write_table(_evenly(table, rows), path)
        found[name] = str(path)
    weights = shared / "weights/mobilenetv2_100.imagenet1k.safetensors"
    return {**found, "mobilenet": str(weights)}


def _evenly(table: pa.Table, rows: int) -> pa.Table:
    """Rows at equal distances, in the order of the table."""
    return table.take(pa.array([row * table.num_rows // rows for row in range(rows)]))
