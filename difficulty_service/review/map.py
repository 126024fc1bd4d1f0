"""A map on which images with similar features lie close to each other.

Drawing a map needs torch, showing one does not.
"""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.scores.samples import ScoredSamples

if TYPE_CHECKING:
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
    # A direction with a large variance is one that the whitening map shrinks much.
    left, _, _ = np.linalg.svd(gaussians.within.whitening.numpy(), full_matrices=False)
    within = left[:, ::-1][:, :MAX_DIRECTIONS]
    directions, _ = np.linalg.qr(np.hstack([between, within]))
    count = min(MAX_DIRECTIONS, gaussians.within.rank)
    return np.asarray(directions[:, :count])


def coordinates(
    store: "FeatureSource", gaussians: "Gaussians", directions: NDArray[np.float64], step: int = 1
) -> Iterator[tuple[pa.Array, NDArray[np.float64]]]:
    """Ids of every `step`-th sample, and coordinates of shape (samples, count), part by part.

    Of several augmentation runs, only the first one is read.
    """
    # The product with the whitening map is that of few directions here, not of all.
    unwhitened = gaussians.within.whitening.numpy().T @ directions
    origin = gaussians.mean.numpy()
    seen = 0
    for shard in range(store.num_parts):
        part = store.open_part(shard)
        first = (part.runs == part.runs.min()) if len(part.runs) else part.runs.bool()
        places = first.nonzero().flatten()
        chosen = places[-seen % step :: step]
        seen += len(places)
        ids = part.sample_ids.take(pa.array(chosen.numpy()))
        prepared = gaussians.prepare(part.features()[chosen]).double().numpy()
        yield ids, (prepared - origin) @ unwhitened


MAX_POINTS = 20_000
SEED = 0
EXAGGERATED_STEPS, STEPS = 100, 250
EDGE = 0.002
"""Share of the points at each side that are moved to the edge of the map."""

CLASS_COLOURS = 10

TWO_DIRECTIONS = "the two directions in which classes differ most"


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

    def data(self, samples: ScoredSamples, address: str | None = None) -> dict[str, object]:
        """The points as the page's script reads them: packed numbers, ids, names of classes."""
        labels = samples.labels[self.rows]
        order = np.argsort(-np.bincount(labels, minlength=1), kind="stable")
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        coloured = [samples.name_of(int(label)) for label in order[:CLASS_COLOURS]]
        present = len(np.unique(labels))
        percentiles = np.nan_to_num(samples.percentiles[self.rows], nan=0.0)
        return {
            "address": address,
            "positions": _packed((self.positions * 65535).round().astype("<u2")),
            "colours": _packed(np.minimum(rank[labels], CLASS_COLOURS).astype(np.uint8)),
            "percentiles": _packed((percentiles * 255).round().astype(np.uint8)),
            "doubtful": _packed(samples.is_doubtful[self.rows].astype(np.uint8)),
            "classes": coloured[:present],
            "others": max(0, present - CLASS_COLOURS),
            "labels": labels.tolist(),
            "names": {int(label): samples.name_of(int(label)) for label in np.unique(labels)},
            "rows": self.rows.tolist(),
            "ids": samples.ids.take(pa.array(self.rows)).to_pylist(),
        }


def has_tsne() -> bool:
    """Whether openTSNE is installed."""
    return find_spec("openTSNE") is not None


def draw_map(samples: ScoredSamples, store: "FeatureSource") -> ImageMap | None:
    """Places samples by the directions in which classes differ most.

    None where there are fewer than three classes or ten samples to place.

    Uses t-SNE where openTSNE is installed, otherwise the first two discriminants.
    """
    from difficulty_service.gaussians.fit_options import FitOptions
    from difficulty_service.scores.fit_store import fit_store

    gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
    ids, places = _read(store, gaussians, discriminants(gaussians))
    rows = pc.index_in(ids, value_set=samples.ids)
    found = rows.is_valid().to_numpy(zero_copy_only=False)
    places, rows = places[found], rows.drop_null().cast(pa.int64()).to_numpy()
    if places.shape[1] < 2 or len(rows) < 10:  # noqa: PLR2004 - a plane, and enough points
        return None
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), MAX_POINTS)).astype(np.int64)
    if not has_tsne():
        plane, method = places[chosen, :2], TWO_DIRECTIONS
    else:
        plane, method = _tsne(places[chosen]), "t-SNE of the directions between classes"
    return ImageMap(rows[chosen], _within_unit(plane), method, len(rows))


def place_samples(store: "FeatureSource", gaussians: "Gaussians") -> pa.Table | None:
    """Positions of up to `MAX_POINTS` samples by the two directions in which classes differ most.

    The columns sample_id, x and y, both from 0 to 1; None where there are fewer than three classes
    or ten samples to place.
    """
    directions = discriminants(gaussians)[:, :2]
    step = _step(store.description.num_samples)
    ids, plane = _read(store, gaussians, directions, step)
    if plane.shape[1] < 2 or len(ids) < 10:  # noqa: PLR2004 - a plane, and enough points
        return None
    x, y = _within_unit(plane).astype(np.float32).T
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
    return ImageMap(rows, positions, TWO_DIRECTIONS, len(samples))


def _step(num_samples: int) -> int:
    """Of so many samples each, one is placed."""
    return -(-num_samples // MAX_POINTS)


def _read(
    store: "FeatureSource", gaussians: "Gaussians", directions: NDArray[np.float64], step: int = 1
) -> tuple[pa.Array, NDArray[np.float64]]:
    """Ids and coordinates of every `step`-th sample."""
    ids, blocks = zip(*coordinates(store, gaussians, directions, step), strict=True)
    return pa.concat_arrays(ids), np.concatenate(blocks)


def _tsne(places: NDArray[np.float64]) -> NDArray[np.float64]:
    from openTSNE import TSNE

    embedding = TSNE(
        perplexity=min(30.0, (len(places) - 1) / 3),
        initialization="pca",
        early_exaggeration_iter=EXAGGERATED_STEPS,
        n_iter=STEPS,
        random_state=SEED,
        n_jobs=1,
    ).fit(places)
    return np.asarray(embedding, np.float64)


def _within_unit(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions between 0 and 1, with the outermost points at the edges."""
    low, high = np.quantile(plane, [EDGE, 1 - EDGE], axis=0)
    positions: NDArray[np.float64] = ((plane - low) / np.maximum(high - low, 1e-12)).clip(0, 1)
    return positions


def _packed(numbers: NDArray[np.uint8] | NDArray[np.uint16]) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()
