"""How many labels called probably wrong are wrong, by how well features tell classes apart.

Run: python -m benchmarks.studies.separation FEATURES... [--samples 300 1000]

A tenth of the labels of features on disk are changed to another class by chance. Each line is the
mean over three draws of wrong labels and of so many samples.
"""

import argparse
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from difficulty_service.features.array_files import open_features
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.scores.label_counts import shares_of_wrong
from difficulty_service.scores.separation import Separation
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.scoring.store import score_in_memory

DRAWS = 3
WRONG = 0.1

Labels = NDArray[np.int64]


def read(source: FeatureSource) -> tuple[NDArray[np.float32], Labels]:
    """Features (samples, dim) and labels (samples,) of a store."""
    shards = [source.open_shard(shard, []) for shard in range(source.num_shards)]
    features = torch.cat([each.features().clone() for each in shards])
    return features.numpy(), torch.cat([each.labels for each in shards]).long().numpy()


def draw(
    features: NDArray[np.float32], labels: Labels, samples: int, seed: int
) -> tuple[float, int, int]:
    """Separation, number of labels above 1/2, and how many of these are wrong."""
    generator = np.random.default_rng(seed)
    rows = generator.permutation(len(labels))[:samples]
    _, right = np.unique(labels[rows], return_inverse=True)
    num_classes = int(right.max()) + 1
    wrong = generator.random(len(right)) < WRONG
    given = np.where(
        wrong, (right + generator.integers(1, num_classes, len(right))) % num_classes, right
    )
    source = read_arrays(features[rows], given, None)
    scores = score_in_memory(source, fit_store(source, FitOptions()))
    above = np.array(scores.table["p_wrong"].to_pylist(), dtype=float) > 0.5  # noqa: PLR2004
    margins = np.array(scores.table["label_margin"].to_pylist(), dtype=float)
    shares = shares_of_wrong(scores.provenance.suspicion)
    separation = Separation.of(int((margins > 0).sum()), np.bincount(given).tolist(), shares)
    assert separation is not None  # noqa: S101 - there are several classes
    return separation.value, int(above.sum()), int((above & wrong).sum())


def main() -> None:
    """Prints a line for each store and number of samples."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("features", nargs="+", type=Path)
    parser.add_argument("--samples", nargs="+", type=int, default=[300, 1000, 4000])
    arguments = parser.parse_args()
    for path in arguments.features:
        features, labels = read(open_features(path))
        for samples in arguments.samples:
            if samples > len(labels):
                continue
            draws = [draw(features, labels, samples, seed) for seed in range(DRAWS)]
            above, wrong = (sum(each[place] for each in draws) for place in (1, 2))
            share = f"{wrong / above:.2f}" if above else "-"
            separation = np.mean([each[0] for each in draws])
            print(
                f"{path.name:24}{samples:6} samples  separation {separation:.2f}  above 1/2: "
                f"{above / DRAWS:.0f}, of these wrong {share}",
                flush=True,
            )


if __name__ == "__main__":
    main()
