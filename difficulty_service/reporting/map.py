"""A map on which images with similar features lie close to each other."""

import base64
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.feature_store.store import FeatureStore
from difficulty_service.reporting.samples import ScoredSamples
from difficulty_service.scoring.fit_store import fit_store
from difficulty_service.statistics.fit_options import FitOptions
from difficulty_service.statistics.gaussian import Gaussians

MAX_POINTS = 20_000
MAX_DIRECTIONS = 50
"""Number of discriminants that t-SNE gets; more of them separate no more classes on a plane."""

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
        rows: Rows of the samples. Shape (points,).
        positions: Between 0 and 1. Shape (points, 2).
        method: How they were found, as a phrase.
        num_samples: Number of samples that they were chosen from.
    """

    rows: NDArray[np.int64]
    positions: NDArray[np.float64]
    method: str
    num_samples: int

    def data(self, samples: ScoredSamples, address: str | None = None) -> dict[str, object]:
        """The points as the page's script reads them: packed numbers, ids, names of classes.

        Args:
            samples: The scores.
            address: Path below which each image has a page, by its row; None without such pages.
        """
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


def draw_map(samples: ScoredSamples, store: FeatureStore) -> ImageMap | None:
    """Places samples by the directions in which classes differ most.

    Uses t-SNE where openTSNE is installed, otherwise the first two discriminants.

    Args:
        samples: The scores.
        store: Features of the same samples.

    Returns:
        None where there are fewer than three classes or ten samples to place.

    Raises:
        FeatureStoreError: A part of the store is damaged.
        StatisticsError: No Gaussian can be fitted.
    """
    gaussians = fit_store(store, FitOptions("auto", "auto")).gaussians
    directions = _discriminants(gaussians)
    ids, coordinates = _read(store, gaussians, directions)
    rows = pc.index_in(ids, value_set=samples.ids)
    found = rows.is_valid().to_numpy(zero_copy_only=False)
    coordinates, rows = coordinates[found], rows.drop_null().cast(pa.int64()).to_numpy()
    if coordinates.shape[1] < 2 or len(rows) < 10:  # noqa: PLR2004 - a plane, and enough points
        return None
    chosen = np.linspace(0, len(rows) - 1, min(len(rows), MAX_POINTS)).astype(np.int64)
    if not has_tsne():
        plane, method = coordinates[chosen, :2], TWO_DIRECTIONS
    else:
        plane, method = (
            _tsne(coordinates[chosen]),
            "t-SNE of the directions between classes",
        )
    return ImageMap(rows[chosen], _within_unit(plane), method, len(rows))


def place_samples(store: FeatureStore, gaussians: Gaussians) -> pa.Table | None:
    """Positions of up to `MAX_POINTS` samples by the two directions in which classes differ most.

    Args:
        store: A complete store.
        gaussians: Gaussians of features of the same kind.

    Returns:
        The columns sample_id, x and y, both between 0 and 1; None where there are fewer than three
        classes or ten samples to place.
    """
    directions = _discriminants(gaussians)[:, :2]
    step = _step(int(store.description["num_samples"]))
    ids, plane = _read(store, gaussians, directions, step)
    if plane.shape[1] < 2 or len(ids) < 10:  # noqa: PLR2004 - a plane, and enough points
        return None
    x, y = _within_unit(plane).astype(np.float32).T
    return pa.table({"sample_id": ids, "x": x, "y": y})


def placed_map(placed: pa.Table, samples: ScoredSamples) -> ImageMap:
    """The map of what `place_samples` has placed."""
    rows = _rows_of(placed["sample_id"].combine_chunks(), samples)
    found = rows.is_valid().to_numpy(zero_copy_only=False)
    positions = np.stack([placed[name].to_numpy() for name in ("x", "y")], 1)[found]
    return ImageMap(
        rows.drop_null().cast(pa.int64()).to_numpy(),
        positions.astype(np.float64),
        TWO_DIRECTIONS,
        len(samples),
    )


def _rows_of(ids: pa.StringArray, samples: ScoredSamples) -> pa.Array:
    """Row of each sample that was placed; null where the scores do not have it."""
    # Scores have the order of the features, so that a million ids need not be searched.
    step = _step(len(samples))
    expected = pa.array(np.arange(0, len(samples), step))
    if len(expected) == len(ids) and samples.ids.take(expected).equals(ids):
        return expected
    return pc.index_in(ids, value_set=samples.ids)


def _step(num_samples: int) -> int:
    """Of so many samples each, one is placed."""
    return -(-num_samples // MAX_POINTS)


def _discriminants(gaussians: Gaussians) -> NDArray[np.float64]:
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


def _read(
    store: FeatureStore, gaussians: Gaussians, directions: NDArray[np.float64], step: int = 1
) -> tuple[pa.Array, NDArray[np.float64]]:
    """Ids of every `step`-th sample and coordinates, of the first augmentation run alone."""
    ids: list[str] = []
    blocks: list[NDArray[np.float64]] = []
    seen = 0
    for shard in range(store.num_parts):
        part = store.read_part(shard)
        first = (part.runs == part.runs.min()) if len(part.runs) else part.runs.bool()
        places = first.nonzero().flatten()
        chosen = places[-seen % step :: step]
        seen += len(places)
        ids += [part.sample_ids[place] for place in chosen.tolist()]
        blocks.append(gaussians.whiten(part.features[chosen]).numpy() @ directions)
    return pa.array(ids, pa.string()), np.concatenate(blocks)


def _tsne(coordinates: NDArray[np.float64]) -> NDArray[np.float64]:
    from openTSNE import TSNE

    embedding = TSNE(
        perplexity=min(30.0, (len(coordinates) - 1) / 3),
        initialization="pca",
        early_exaggeration_iter=EXAGGERATED_STEPS,
        n_iter=STEPS,
        random_state=SEED,
        n_jobs=1,
    ).fit(coordinates)
    return np.asarray(embedding, np.float64)


def _within_unit(plane: NDArray[np.float64]) -> NDArray[np.float64]:
    """Positions between 0 and 1, with the outermost points at the edges."""
    low, high = np.quantile(plane, [EDGE, 1 - EDGE], axis=0)
    positions: NDArray[np.float64] = ((plane - low) / np.maximum(high - low, 1e-12)).clip(0, 1)
    return positions


def _packed(numbers: NDArray[np.uint8] | NDArray[np.uint16]) -> str:
    return base64.b64encode(np.ascontiguousarray(numbers).tobytes()).decode()
