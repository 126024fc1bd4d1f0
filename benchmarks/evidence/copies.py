"""Test images that are in the training set, by the bound of near copies.

    python -m benchmarks.evidence.copies [--folder runs/evidence]

All test images of CIFAR-10 and CIFAR-100 against all training images, with the built-in encoder.
Writes `leaks.csv` of the evidence: how many test images have a near copy from a cosine on, how many
of these have another label than it, and the share of duplicates that Barz and Denzler (2020)
publish, found by a network that was trained on CIFAR and by looking at candidates.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path

import difficulty_service as ds
from benchmarks.evidence.data import Study, extract, require_data
from benchmarks.evidence.page import DOCS, TABLES, write_page
from benchmarks.evidence.tables import Row, write_rows
from benchmarks.machine import machine
from benchmarks.real_data import shared_folder

PUBLISHED = {"cifar10": 3.3, "cifar100": 10.0}
"""Percent of the test images of which the training set has a duplicate, by dataset."""

COSINES = (0.97, 0.96, 0.95, 0.94)
COLUMNS = (
    *("dataset", "features", "cosine", "test_images", "exact", "near", "near_percent"),
    *("conflicting", "published_percent", "machine"),
)


def rows(study: Study) -> Iterator[Row]:
    """A row for each dataset and bound."""
    for dataset, published in PUBLISHED.items():
        train, test = (f"{dataset}-{split}" for split in ("train", "test"))
        for source in (train, test):
            extract(study, source, "builtin")
        for cosine in COSINES:
            stores = (study.store(source, "builtin") for source in (train, test))
            (found,) = ds.leaks(*stores, near_duplicates=cosine).tests
            near = found.copies - found.exact
            row = {
                "dataset": dataset,
                "features": "builtin",
                "cosine": f"{cosine:g}",
                "test_images": str(found.num_samples),
                "exact": str(found.exact),
                "near": str(near),
                "near_percent": f"{100 * near / found.num_samples:.1f}",
                "conflicting": str(found.conflicting),
                "published_percent": f"{published:g}",
            }
            print(row, flush=True)
            yield row | {"machine": machine()}


def main() -> None:
    """Searches, and writes the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("runs/evidence"))
    arguments = parser.parse_args()
    study = Study(arguments.folder, shared_folder())
    require_data(study)
    write_rows(DOCS / TABLES / "leaks.csv", COLUMNS, list(rows(study)))
    write_page(DOCS)


if __name__ == "__main__":
    main()
