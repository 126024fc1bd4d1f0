"""A feature store and Gaussians to the rows of a score file, a few thousand at a time."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import StatisticsError
from difficulty_service.feature_store import FeatureStore
from difficulty_service.gaussian import Gaussians
from difficulty_service.leave_one_out import rmd_left_out
from difficulty_service.parallel import map_in_order, num_workers
from difficulty_service.plain_features import Allocate
from difficulty_service.products import Workspace, chunk_ranges, one_thread_per_product
from difficulty_service.scorers.kmeans import fit_kmeans, kmeans_distance
from difficulty_service.scorers.knn import NUM_NEIGHBOURS, knn_distance
from difficulty_service.scorers.mahalanobis import (
    SCORED_ROWS,
    RelativeMahalanobis,
    relative_mahalanobis,
)

MUST_AGREE = (
    "backbone",
    "weights_sha256",
    "features",
    "feature_dim",
    "precision",
    "preprocessing",
    "mode",
)
"""What the features that are scored must share with those the Gaussians were fitted to."""

SAME_ROWS = ("fingerprint", "max_pixels", "augment_runs", "seed")
"""Where these agree too, the features scored are those fitted to, and can be left out."""


@dataclass(frozen=True)
class Classes:
    """The classes of a score file: those of the Gaussians, then those only the data has.

    Attributes:
        names: Name of each label of the score file.
        num_fitted: How many of them the Gaussians know.
        label_of: Label in the score file of each label of the store. Shape (store classes,).
    """

    names: tuple[str, ...]
    num_fitted: int
    label_of: Tensor


@dataclass(frozen=True)
class Scored:
    """What became of the samples of a store.

    Attributes:
        num_samples: Rows of the score file.
        num_scored: Those of them that have an RMD.
        warnings: Sentences about what a reader has to know.
    """

    num_samples: int
    num_scored: int
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class _Chunk:
    """Some rows of a part, all runs of their samples among them.

    Attributes:
        sample_ids: One per sample.
        labels: In the score file, one per row. Shape (samples * runs,).
        read_features: Reads them; shape (samples * runs, dim).
        runs: Rows per sample.
    """

    sample_ids: Sequence[str]
    labels: Tensor
    read_features: Callable[[Allocate], Tensor]
    runs: int


def require_same_features(store: Mapping[str, Any], fitted_on: Mapping[str, Any]) -> None:
    """Refuses to score features with Gaussians of other features.

    Raises:
        StatisticsError: They differ; the message names each difference.
    """
    different = [key for key in MUST_AGREE if store.get(key) != fitted_on.get(key)]
    if different:
        shown = "; ".join(
            f"{key}: {store.get(key)} here, {fitted_on.get(key)} there" for key in different
        )
        raise StatisticsError(f"the Gaussians were fitted to other features ({shown})")


def match_classes(store_names: Sequence[str], fitted_names: Sequence[str]) -> Classes:
    """Matches classes by name, so that two datasets may number them differently."""
    names = [*fitted_names, *(name for name in store_names if name not in set(fitted_names))]
    index = {name: position for position, name in enumerate(names)}
    label_of = torch.tensor([index[name] for name in store_names], dtype=torch.int64)
    return Classes(tuple(names), len(fitted_names), label_of)


def score_store(
    store: FeatureStore,
    gaussians: Gaussians,
    fitted_on: Mapping[str, Any],
    scorers: Sequence[str],
    append: Callable[[pa.RecordBatch], None],
) -> Scored:
    """Scores every sample of a store; all columns of a score file but the percentile.

    Args:
        store: A complete store.
        gaussians: Fitted to this store or to another one.
        fitted_on: Description of the store they were fitted to.
        scorers: Of `rmd`, `kmeans` and `knn`; the Mahalanobis columns are always there.
        append: Takes the rows, batch by batch in the order of the store.

    Raises:
        StatisticsError: The Gaussians were fitted to other features.
    """
    require_same_features(store.description, fitted_on)
    classes = match_classes(store.class_names, fitted_on["class_names"])
    left_out = all(store.description.get(key) == fitted_on.get(key) for key in SAME_ROWS)
    names = pa.array(classes.names)
    scorer = relative_mahalanobis(gaussians)
    rivals = _rival_scores(store, scorers)
    work = Workspace()

    def score_chunk(chunk: _Chunk) -> dict[str, NDArray[Any]]:
        return _columns(chunk, gaussians, scorer, work, left_out=left_out)

    num_samples, num_scored, labels = 0, 0, set[int]()
    with one_thread_per_product():
        for columns in map_in_order(score_chunk, _chunks(store, classes), num_workers()):
            rows = slice(num_samples, num_samples + len(columns["label"]))
            columns |= {name: values[rows] for name, values in rivals.items()}
            arrays = {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
            named = pa.DictionaryArray.from_arrays(arrays["label"], names)
            append(pa.record_batch({**arrays, "label_name": named}))
            num_samples = rows.stop
            num_scored += int((~np.isnan(columns["rmd"])).sum())
            labels.update(np.unique(columns["label"]).tolist())
    warnings = [*gaussians.warnings, *_unfitted(labels, classes)]
    if num_scored < num_samples:
        warnings.append(f"{num_samples - num_scored} of {num_samples} samples have no rmd")
    return Scored(num_samples, num_scored, tuple(warnings))


def _chunks(store: FeatureStore, classes: Classes) -> Iterator[_Chunk]:
    for shard in range(store.num_parts):
        part = store.open_part(shard)
        if not part.sample_ids:
            continue
        runs = int(part.runs.max()) or 1
        labels = classes.label_of[part.labels]
        for rows in chunk_ranges(len(labels), max(1, SCORED_ROWS // runs) * runs):
            ids = part.sample_ids[rows.start : rows.stop : runs]
            yield _Chunk(ids, labels[rows], partial(part.read_features, rows), runs)


def _columns(
    chunk: _Chunk,
    gaussians: Gaussians,
    scorer: RelativeMahalanobis,
    work: Workspace,
    *,
    left_out: bool,
) -> dict[str, NDArray[Any]]:
    """Columns of one chunk; the runs of a sample are averaged."""
    labels, runs = chunk.labels, chunk.runs
    # Those of several runs are needed once more after they are scored.
    features = chunk.read_features(work.rows if runs == 1 else torch.empty)
    num_samples = len(labels) // runs
    fitted = torch.where(labels < len(scorer.class_norms), labels, -1)
    rows = scorer.distances_of_chunk(features, fitted, work)
    by_sample = {name: getattr(rows, name).view(-1, runs) for name in ("md", "md_agnostic", "rmd")}
    # Distances to two classes differ by a linear function of the features, so the margin of the
    # mean features is the mean margin.
    compared = rows
    if runs > 1:
        means = features.double().view(num_samples, runs, -1).mean(dim=1)
        compared = scorer.distances_of_chunk(means, fitted[::runs], work)
    columns: dict[str, NDArray[Any]] = {
        "sample_id": np.array(chunk.sample_ids, dtype=object),
        "label": labels[::runs].numpy().astype(np.int32),
        **{name: values.mean(dim=1).numpy() for name, values in by_sample.items()},
        "rmd_std": np.full(num_samples, np.nan, np.float32),
        "rmd_loo": np.full(num_samples, np.nan),
        "nearest_label": compared.nearest_label.numpy().astype(np.int32),
        "label_margin": compared.label_margin.numpy(),
    }
    if runs > 1:
        columns["rmd_std"] = by_sample["rmd"].std(dim=1).numpy().astype(np.float32)
    if left_out:
        columns["rmd_loo"] = rmd_left_out(
            gaussians, features, fitted, rows.md, rows.md_agnostic
        ).numpy()
    return columns


def _rival_scores(store: FeatureStore, scorers: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """The K-means and nearest-neighbour columns that were asked for; holds all features."""
    if not {"kmeans", "knn"} & set(scorers):
        return {}
    parts = (store.open_part(shard, []).features() for shard in range(store.num_parts))
    features = torch.cat([rows.view(-1, store.runs, rows.shape[1]).mean(dim=1) for rows in parts])
    columns = {}
    if "kmeans" in scorers:
        num_clusters = len(store.class_names)
        centroids = fit_kmeans(features, num_clusters, seed=int(store.description["seed"]))
        columns["kmeans"] = kmeans_distance(features, centroids).numpy()
    if "knn" in scorers:
        columns["knn"] = knn_distance(features, features, NUM_NEIGHBOURS, exclude_self=True).numpy()
    return columns


def _unfitted(labels: set[int], classes: Classes) -> list[str]:
    """What to say of the labels that no Gaussian was fitted to."""
    unfitted = sorted(label for label in labels if label >= classes.num_fitted)
    if not unfitted:
        return []
    names = [classes.names[label] for label in unfitted[:5]]
    return [
        f"{len(unfitted)} classes were not there when the Gaussians were fitted, so their "
        f"samples have no md and no rmd: {names}"
    ]
