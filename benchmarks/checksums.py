"""How much of the time to read a file its checksum takes: scores, a store's shard, Gaussians.

    python -m benchmarks.checksums

Each file is read with its checksum and, by turns, with the check left out; printed are the
least seconds of processors, summed over threads. The files are in the system's cache, so that
nothing else is as slow as on a disk.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pyarrow as pa
import torch

from difficulty_service.base import checksums as checksum
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.shard import MappedFeatures, ShardTable, open_shard, write_shard
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.moments import compute_moments
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance
from difficulty_service.scoring.fitted_gaussians import load_gaussians, save_gaussians

REPEATS = 7
CLASSES = 100


def write_files(folder: Path, samples: int, rows: int, dim: int) -> None:
    """Writes the three files with random content."""
    generator = np.random.default_rng(0)
    numbers = {
        name: generator.standard_normal(samples)
        for name in ("md", "md_agnostic", "rmd", "rmd_loo", "label_margin", "percentile")
    }
    labels = generator.integers(0, CLASSES, samples)
    columns = {
        "sample_id": [f"train/{row % CLASSES:03d}/{row:08d}.jpg" for row in range(samples)],
        "label": labels,
        "label_name": [f"class {label}" for label in labels],
        "nearest_label": labels,
        **numbers,
    }
    write_scores(folder / "scores.parquet", pa.table(columns), Provenance.of({"dataset": "random"}))
    features = torch.from_numpy(generator.standard_normal((rows, dim), dtype=np.float32))
    of_rows = torch.arange(rows) % CLASSES
    ids = [f"{row:08d}" for row in range(rows)]
    table = ShardTable(ids, of_rows, torch.zeros(rows, dtype=torch.int64), features)
    write_shard(folder / "part-00000.arrow", table, [])
    gaussians = fit(features[:20_000], of_rows[:20_000], CLASSES, FitOptions(shrinkage=0.1))
    described = FeatureDescription(class_names=("a",), num_shards=1, augment_runs=0)
    save_gaussians(
        folder / "gaussians.safetensors",
        gaussians,
        described,
    )


def readers(folder: Path, rows: int) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""

    def blocks(add: bool) -> None:  # noqa: FBT001 - two rows of the table
        opened = open_shard(folder / "part-00000.arrow", [])
        for start in range(0, rows, 4096):
            stop = min(start + 4096, rows)
            features = opened.read_features(slice(start, stop))
            features.sum()  # reads the mapped memory
            if add:
                compute_moments(features, opened.labels[start:stop], features[0], CLASSES)

    return {
        "scores, all columns": lambda: read_scores(folder / "scores.parquet"),
        "scores, ids and rmd": lambda: read_scores(folder / "scores.parquet", ["sample_id", "rmd"]),
        "part, features only": lambda: blocks(add=False),
        "part, features and moments": lambda: blocks(add=True),
        "Gaussians": lambda: load_gaussians(folder / "gaussians.safetensors"),
    }


@contextmanager
def unchecked() -> Iterator[None]:
    """Gives the expected checksums without computing any."""
    with (
        mock.patch.object(checksum, "_digest", return_value=mock.ANY),
        mock.patch.object(MappedFeatures, "_verify", return_value=None),
    ):
        yield


def seconds(read: Callable[[], object]) -> float:
    """Seconds of processors in one call, in which the file is not known to be whole."""
    checksum._verify_path.cache_clear()
    began = time.process_time()
    read()
    return time.process_time() - began


def main() -> None:
    """Prints a row for each file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=1_300_000)
    parser.add_argument("--rows", type=int, default=250_000)
    parser.add_argument("--dim", type=int, default=768)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_files(folder, arguments.samples, arguments.rows, arguments.dim)
        for file in sorted(folder.iterdir()):
            print(f"{file.name}: {file.stat().st_size / 1e6:.0f} MB")
        for what, read in readers(folder, arguments.rows).items():
            read()
            checked, plain = [], []
            for _ in range(REPEATS):
                checked.append(seconds(read))
                with unchecked():
                    plain.append(seconds(read))
            with_check, without = min(checked), min(plain)
            share = (with_check - without) / with_check
            print(
                f"{what}: {1e3 * with_check:.1f} ms, without {1e3 * without:.1f} ms, {share:.1%}",
                flush=True,
            )


if __name__ == "__main__":
    main()
