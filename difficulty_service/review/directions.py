"""Directions of the features in which classes and images differ most."""

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.features.store import FeatureStore
from difficulty_service.gaussians.gaussian import Gaussians

MAX_DIRECTIONS = 50
"""Number of directions; more discriminants separate hardly more classes."""


def discriminants(gaussians: Gaussians) -> NDArray[np.float64]:
    """Whitened directions, the one in which class means differ most first. Shape (rank, count)."""
    means = gaussians.whitened_means.numpy()
    counts = gaussians.moments.counts.numpy().astype(np.float64)
    used = counts > 0
    weighted = means[used] * np.sqrt(counts[used] / counts.sum())[:, None]
    if not np.isfinite(weighted).all():
        return np.empty((means.shape[1], 0))
    _, spread, directions = np.linalg.svd(weighted, full_matrices=False)
    kept = spread > 1e-6 * spread[0]
    return directions[kept][: min(MAX_DIRECTIONS, int(used.sum()) - 1)].T


def similarity_directions(gaussians: Gaussians) -> NDArray[np.float64]:
    """Up to MAX_DIRECTIONS orthonormal whitened directions by which images are compared.

    The discriminants come first. Few classes have too few of them to tell the images of one class
    apart, so those directions follow in which the images of a class differ most before whitening.

    Returns:
        Shape (rank, count).
    """
    between = discriminants(gaussians)
    # A direction with a large variance is one that the whitening map shrinks much.
    left, _, _ = np.linalg.svd(gaussians.within.whitening.numpy(), full_matrices=False)
    within = left[:, ::-1][:, :MAX_DIRECTIONS]
    directions, _ = np.linalg.qr(np.hstack([between, within]))
    count = min(MAX_DIRECTIONS, gaussians.within.rank)
    return np.asarray(directions[:, :count])


def coordinates(
    store: FeatureStore, gaussians: Gaussians, directions: NDArray[np.float64], step: int = 1
) -> Iterator[tuple[pa.Array, NDArray[np.float64]]]:
    """Ids and coordinates of every `step`-th sample, part by part.

    Of several augmentation runs, only the first one is read.

    Args:
        store: A complete store.
        gaussians: Gaussians of features of the same kind.
        directions: Whitened directions. Shape (rank, count).
        step: Distance between two samples.

    Yields:
        Ids, and coordinates of shape (samples, count).

    Raises:
        FeatureStoreError: A part is damaged.
    """
    # The product with the whitening map is that of few directions here, not of all.
    unwhitened = gaussians.within.whitening.numpy().T @ directions
    origin = gaussians.mean.numpy()
    seen = 0
    for shard in range(store.num_parts):
        part = store.read_part(shard)
        first = (part.runs == part.runs.min()) if len(part.runs) else part.runs.bool()
        places = first.nonzero().flatten()
        chosen = places[-seen % step :: step]
        seen += len(places)
        ids = pa.array([part.sample_ids[place] for place in chosen.tolist()], pa.string())
        prepared = gaussians.prepare(part.features[chosen]).double().numpy()
        yield ids, (prepared - origin) @ unwhitened
