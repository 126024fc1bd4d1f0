"""A map on which images with similar features lie close to each other.

Drawing a map needs torch, showing one does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.reports.tsne import METHOD, chosen_of, embed, has_tsne
from difficulty_service.scores.samples import ScoredSamples

if TYPE_CHECKING:
    from torch import Tensor

    from difficulty_service.features.source import FeatureSource
    from difficulty_service.gaussians.gaussian import Gaussians

MAX_DIRECTIONS = 50
"""Number of directions; more discriminants separate hardly more classes."""


def discriminants(gaussians: "Gaussians") -> NDArray[np.float64]:
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


def similarity_directions(gaussians: "Gaussians") -> NDArray[np.float64]:
    """Up to MAX_DIRECTIONS orthonormal whitened directions by which images are compared.

    The discriminants come first. Few classes have too few of them to tell the images of one class
    apart, so those directions follow in which the images of a class differ most before whitening.
    Shape (rank, count).
    """
    between = discriminants(gaussians)
    within = _widest_directions(gaussians.within.whitening.numpy(), MAX_DIRECTIONS)
    directions, _ = np.linalg.qr(np.hstack([between, within]))
    count = min(MAX_DIRECTIONS, gaussians.within.rank)
    return np.asarray(directions[:, :count])


def _widest_directions(whitening: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    """Whitened directions that a whitening map shrinks most, the one of the largest variance first.

    These are its left singular vectors of the smallest singular values: up to `count`, of shape
    (rank, count).
    """
    from scipy.linalg import lapack

    rank, dim = whitening.shape
    # A map that has dropped no direction is triangular.
    triangle = whitening.T if rank == dim else np.linalg.qr(whitening.T, mode="r")
    # Among those of the inverse they are the first, which rounding harms least.
    inverse, _ = lapack.dtrtri(triangle)
    # All of them: the routines for some fail where many variances are the same.
    _, directions = np.linalg.eigh(inverse @ inverse.T)
    return np.asarray(directions[:, ::-1][:, :count])


def map_directions(gaussians: "Gaussians") -> NDArray[np.float64]:
    """Whitened directions of a map, the one in which samples differ most first: the discriminants.

    Fewer than three classes have too few for a plane, so others follow. Shape (rank, count).
    """
    between = discriminants(gaussians)
    return between if between.shape[1] >= PLANE else similarity_directions(gaussians)


def first_features(store: "FeatureSource", step: int = 1) -> Iterator[tuple[pa.Array, "Tensor"]]:
    """Ids of every `step`-th sample, and its features, of shape (samples, dim), shard by shard.

    Of several augmentation runs, only the first one is read.
    """
    seen = 0
    for shard in range(store.num_shards):
        opened = store.open_shard(shard)
        first = (opened.runs == opened.runs.min()) if len(opened.runs) else opened.runs.bool()
        places = first.nonzero().flatten()
        chosen = places[-seen % step :: step]
        seen += len(places)
        yield opened.sample_ids.take(pa.array(chosen.numpy())), opened.features()[chosen]


def coordinates(
    store: "FeatureSource", gaussians: "Gaussians", directions: NDArray[np.float64], step: int = 1
) -> Iterator[tuple[pa.Array, NDArray[np.float64]]]:
    """Ids of every `step`-th sample, and coordinates of shape (samples, count), shard by shard."""
    # The product with the whitening map is that of few directions here, not of all.
    unwhitened = gaussians.within.whitening.numpy().T @ directions
    origin = gaussians.mean.numpy()
    for ids, features in first_features(store, step):
        prepared = gaussians.prepare(features).double().numpy()
        yield ids, (prepared - origin) @ unwhitened


MAX_PLACED = 1_000_000
"""Largest number of points on the two directions, which are 10 MB for a browser."""

FEWEST = 10

EDGE = 0.002
"""Share of the points at each side that lie in its border."""

BORDER = 0.04
"""Width of the border; beyond the quantiles, distances shrink the more the larger they are."""

PLANE = 2


def method_of(samples: ScoredSamples, *, tsne: bool) -> str:
    """How samples are placed, in words."""
    if tsne:
        between = "between classes" if samples.compares_classes else "in which samples differ most"
        return METHOD.format(between)
    differing = "classes" if samples.compares_classes else "samples"
    return f"the two directions in which {differing} differ most"


@dataclass(frozen=True)
class ImageMap:
    """Positions of samples on a plane.

    Attributes:
        positions: Between 0 and 1. Shape (points, 2).
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.float64]
    method: str
    num_samples: int


def draw_map(samples: ScoredSamples, store: "FeatureSource") -> ImageMap | None:
    """Places samples by the directions in which classes differ most; see `map_directions`.

    None where there are fewer than ten samples to place, or two directions.

    Uses t-SNE where openTSNE is installed, otherwise the first two directions.
    """
    from difficulty_service.gaussians.fit_options import FitOptions
    from difficulty_service.scoring.fit_store import fit_store

    gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
    ids, places = _read(store, gaussians, map_directions(gaussians))
    rows = pc.index_in(ids, value_set=samples.ids)
    found = rows.is_valid().to_numpy(zero_copy_only=False)
    places, rows = places[found], rows.drop_null().cast(pa.int64()).to_numpy()
    if not _is_drawable(places):
        return None
    chosen = chosen_of(len(rows))
    tsne = has_tsne()
    plane = embed(places[chosen]) if tsne else places[chosen, :PLANE]
    method = method_of(samples, tsne=tsne)
    return ImageMap(rows[chosen], within_unit(plane), method, len(rows))


def place_samples(store: "FeatureSource", gaussians: "Gaussians") -> pa.Table | None:
    """Positions of up to MAX_PLACED samples by the first two of `map_directions`.

    The columns sample_id, x and y, both from 0 to 1; None where there are fewer than ten samples to
    place, or two directions.
    """
    directions = map_directions(gaussians)[:, :PLANE]
    step = _step(store.description.num_samples)
    ids, plane = _read(store, gaussians, directions, step)
    if not _is_drawable(plane):
        return None
    x, y = within_unit(plane).astype(np.float32).T
    return pa.table({"sample_id": ids, "x": x, "y": y})


def placed_map(placed: pa.Table, samples: ScoredSamples) -> ImageMap:
    """The map of what `place_samples` has placed."""
    positions = np.stack([placed[name].to_numpy() for name in ("x", "y")], 1).astype(np.float64)
    rows = np.arange(0, len(samples), _step(len(samples)))
    # Scores have the order of the features, so that a million ids need not be searched.
    if not samples.ids.take(pa.array(rows)).equals(placed["sample_id"].combine_chunks()):
        # The placed samples are few, so a hash table of them is small, unlike one of all samples.
        places = pc.index_in(samples.ids, value_set=placed["sample_id"])
        rows = np.flatnonzero(places.is_valid().to_numpy(zero_copy_only=False))
        positions = positions[places.drop_null().to_numpy()]
    return ImageMap(rows, positions, method_of(samples, tsne=False), len(samples))


def _step(num_samples: int) -> int:
    """Of so many samples each, one is placed."""
    return -(-num_samples // MAX_PLACED)


def _is_drawable(places: NDArray[np.floating]) -> bool:
    """Whether there are two directions, and enough samples."""
    return places.shape[1] >= PLANE and len(places) >= FEWEST


def _read(
    store: "FeatureSource", gaussians: "Gaussians", directions: NDArray[np.float64], step: int = 1
) -> tuple[pa.Array, NDArray[np.float64]]:
    """Ids and coordinates of every `step`-th sample."""
    ids, blocks = zip(*coordinates(store, gaussians, directions, step), strict=True)
    return pa.concat_arrays(ids), np.concatenate(blocks)


def tsne_input(
    vectors: NDArray[np.float16], num_classes: int
) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
    """Rows of up to `tsne.MAX_POINTS` of the vectors of `similar.write_vectors`, and what to embed.

    Their first directions are the discriminants; by these the vectors get unit length again, or by
    all where three classes are missing. Rows without a vector are left out. None where too little
    is left for a map.

    Args:
        num_classes: Number of classes that have samples.
    """
    count = min(num_classes - 1, vectors.shape[1])
    if count < PLANE:
        count = vectors.shape[1]
    # Of a memory map, only the rows that are drawn are read.
    rows = chosen_of(len(vectors))
    chosen = np.asarray(vectors[rows, :count], np.float32)
    known = np.isfinite(chosen).all(axis=1)
    rows, chosen = rows[known], chosen[known]
    if not _is_drawable(chosen):
        return None
    lengths = np.linalg.norm(chosen, axis=1, keepdims=True)
    return rows, chosen / np.maximum(lengths, 1e-12)


def within_unit(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions between 0 and 1 in the same order along both axes. Shape (points, 2).

    Outliers would press all others together, so a border holds the points beyond the outermost
    quantiles: a distance d beyond one, in the unit of the border, becomes d / (1 + d) of it.
    """
    low, high = np.quantile(plane, [EDGE, 1 - EDGE], axis=0)
    shares = (plane - low) / np.maximum(high - low, 1e-12)
    beyond = np.maximum(shares - 1, 0) - np.minimum(shares, 0)
    shrunk = beyond / (1 + beyond / BORDER)
    inside = shares.clip(0, 1) + np.where(shares > 1, shrunk, -shrunk)
    positions: NDArray[np.float64] = (inside + BORDER) / (1 + 2 * BORDER)
    return positions
