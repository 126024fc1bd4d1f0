"""A feature store and Gaussians to the columns of a score file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor

from difficulty_service.errors import StatisticsError
from difficulty_service.feature_store import FeatureStore, Part
from difficulty_service.gaussian import Gaussians
from difficulty_service.leave_one_out import rmd_left_out
from difficulty_service.scorers.kmeans import fit_kmeans, kmeans_distance
from difficulty_service.scorers.knn import NUM_NEIGHBOURS, knn_distance
from difficulty_service.scorers.mahalanobis import RelativeMahalanobis, relative_mahalanobis

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
    """A table for `write_scores`, and sentences about what a reader has to know."""

    table: pa.Table
    warnings: tuple[str, ...]


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
    store: FeatureStore, gaussians: Gaussians, fitted_on: Mapping[str, Any], scorers: Sequence[str]
) -> Scored:
    """Scores every sample of a store.

    Args:
        store: A complete store.
        gaussians: Fitted to this store or to another one.
        fitted_on: Description of the store they were fitted to.
        scorers: Of `rmd`, `kmeans` and `knn`; the Mahalanobis columns are always there.

    Raises:
        StatisticsError: The Gaussians were fitted to other features.
    """
    require_same_features(store.description, fitted_on)
    classes = match_classes(store.class_names, fitted_on["class_names"])
    left_out = all(store.description.get(key) == fitted_on.get(key) for key in SAME_ROWS)
    scorer = relative_mahalanobis(gaussians)
    parts = []
    for shard in range(store.num_parts):
        part = store.read_part(shard)
        if part.sample_ids:
            labels = classes.label_of[part.labels]
            parts.append(_score_part(part, labels, gaussians, scorer, left_out=left_out))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["percentile"] = percentiles(columns["rmd"])
    columns |= _rival_scores(store, scorers)
    names = pa.DictionaryArray.from_arrays(
        pa.array(columns["label"], pa.int32()), pa.array(classes.names)
    )
    table = pa.table(
        {name: pa.array(values, from_pandas=True) for name, values in columns.items()}
    ).append_column("label_name", names)
    return Scored(table, tuple(_warnings(columns, gaussians, classes)))


def percentiles(scores: NDArray[np.float64]) -> NDArray[np.float32]:
    """0 for the easiest to 1 for the hardest, ties averaged; NaN stays NaN. Shape (samples,)."""
    result = np.full(len(scores), np.nan, np.float32)
    known = ~np.isnan(scores)
    if known.sum() > 1:
        result[known] = (rankdata(scores[known]) - 1) / (known.sum() - 1)
    return result


def _score_part(
    part: Part, labels: Tensor, gaussians: Gaussians, scorer: RelativeMahalanobis, *, left_out: bool
) -> dict[str, NDArray[Any]]:
    """Columns of one part; the runs of a sample are averaged."""
    runs = int(part.runs.max()) or 1
    fitted = torch.where(labels < len(scorer.class_norms), labels, -1)
    rows = scorer.distances(part.features, fitted)
    by_sample = {name: getattr(rows, name).view(-1, runs) for name in ("md", "md_agnostic", "rmd")}
    # Distances to two classes differ by a linear function of the features, so the margin of the
    # mean features is the mean margin.
    compared = rows
    if runs > 1:
        means = part.features.double().view(-1, runs, part.features.shape[1]).mean(dim=1)
        compared = scorer.distances(means, fitted[::runs])
    columns: dict[str, NDArray[Any]] = {
        "sample_id": np.array(part.sample_ids[::runs], dtype=object),
        "label": labels[::runs].numpy().astype(np.int32),
        **{name: values.mean(dim=1).numpy() for name, values in by_sample.items()},
        "rmd_std": np.full(len(labels) // runs, np.nan, np.float32),
        "rmd_loo": np.full(len(labels) // runs, np.nan),
        "nearest_label": compared.nearest_label.numpy().astype(np.int32),
        "label_margin": compared.label_margin.numpy(),
    }
    if runs > 1:
        columns["rmd_std"] = by_sample["rmd"].std(dim=1).numpy().astype(np.float32)
    if left_out:
        columns["rmd_loo"] = rmd_left_out(
            gaussians, part.features, fitted, rows.md, rows.md_agnostic
        ).numpy()
    return columns


def _rival_scores(store: FeatureStore, scorers: Sequence[str]) -> dict[str, NDArray[np.float32]]:
    """The K-means and nearest-neighbour columns that were asked for; holds all features."""
    if not {"kmeans", "knn"} & set(scorers):
        return {}
    parts = [store.read_part(shard, ["run", "features"]) for shard in range(store.num_parts)]
    features = torch.cat(
        [part.features.view(-1, store.runs, part.features.shape[1]).mean(dim=1) for part in parts]
    )
    columns = {}
    if "kmeans" in scorers:
        num_clusters = len(store.class_names)
        centroids = fit_kmeans(features, num_clusters, seed=int(store.description["seed"]))
        columns["kmeans"] = kmeans_distance(features, centroids).numpy()
    if "knn" in scorers:
        columns["knn"] = knn_distance(features, features, NUM_NEIGHBOURS, exclude_self=True).numpy()
    return columns


def _warnings(
    columns: Mapping[str, NDArray[Any]], gaussians: Gaussians, classes: Classes
) -> list[str]:
    sentences = list(gaussians.warnings)
    unfitted = sorted(set(columns["label"][columns["label"] >= classes.num_fitted].tolist()))
    if unfitted:
        names = [classes.names[label] for label in unfitted[:5]]
        sentences.append(
            f"{len(unfitted)} classes were not there when the Gaussians were fitted, so their "
            f"samples have no md and no rmd: {names}"
        )
    unscored = int(np.isnan(columns["rmd"]).sum())
    if unscored:
        sentences.append(f"{unscored} of {len(columns['rmd'])} samples have no rmd")
    return sentences
