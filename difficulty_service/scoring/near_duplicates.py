"""Samples whose features have a large cosine with those of an earlier sample.

Such samples are often copies of an image that were compressed again, resized, cropped or mirrored.
"""

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.feature_store.source import FeatureSource
from difficulty_service.scorers.near_duplicates import near_pairs
from difficulty_service.scoring.duplicates import Copy, Duplicates


def find_near_duplicates(store: FeatureSource, num_samples: int, threshold: float) -> Duplicates:
    """Near duplicates among the samples of a store; holds all features in memory, in float32.

    Args:
        store: A complete store; the features of a sample with several rows are averaged.
        num_samples: Number of samples of the store.
        threshold: Smallest cosine of near duplicates, in (0, 1].

    Returns:
        For each sample with a near duplicate before it in the store, the earliest one. Samples are
        conflicting where any of their near duplicates has another label.

    Raises:
        StatisticsError: The threshold is not in (0, 1], or a feature is not finite.
        MissingPackage: faiss is not installed.
    """
    features, labels, ids = _read(store, num_samples)
    firsts = np.arange(num_samples)
    conflicting = np.zeros(num_samples, bool)
    conflicts: list[tuple[int, int]] = []
    for later, earlier in near_pairs(features, threshold):
        np.minimum.at(firsts, later, earlier)
        differ = labels[later] != labels[earlier]
        if differ.any():
            conflicting[later[differ]] = conflicting[earlier[differ]] = True
            conflicts.append(_first_pair(earlier[differ], later[differ]))
    positions = np.flatnonzero(firsts < np.arange(num_samples))
    originals, groups = np.unique(firsts[positions], return_inverse=True)
    first, second = (
        Copy(ids[position].as_py(), int(labels[position]))
        for position in min(conflicts, default=(0, 0))
    )
    return Duplicates(
        positions=positions,
        groups=groups,
        first_ids=ids.take(pa.array(originals)),
        num_conflicting=int(conflicting.sum()),
        conflict=(first, second) if conflicts else None,
    )


def _read(
    store: FeatureSource, num_samples: int
) -> tuple[Tensor, NDArray[np.int64], pa.StringArray]:
    """Features of unit length, float32, with the labels and ids of the samples."""
    features = torch.empty(0)
    labels = np.empty(num_samples, np.int64)
    ids = []
    start = 0
    for shard in range(store.num_parts):
        part = store.open_part(shard, ["sample_id"])
        rows = part.features()
        rows = rows.view(-1, store.runs, rows.shape[1]).mean(dim=1)
        if not start:
            features = torch.empty(num_samples, rows.shape[1])
        lengths = torch.linalg.vector_norm(rows, dim=1, keepdim=True, dtype=torch.float64)
        samples = slice(start, start + len(rows))
        features[samples] = rows / lengths.clamp_min(torch.finfo(torch.float64).tiny)
        labels[samples] = part.labels[:: store.runs].numpy()
        ids.append(part.sample_ids[:: store.runs])
        start = samples.stop
    return features, labels, pa.concat_arrays(ids)


def _first_pair(earlier: NDArray[np.int64], later: NDArray[np.int64]) -> tuple[int, int]:
    """The pair with the smallest earlier position, and among these with the smallest later one."""
    first = earlier.min()
    return int(first), int(later[earlier == first].min())
