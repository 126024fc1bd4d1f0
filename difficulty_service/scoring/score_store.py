"""A feature store and Gaussians to the rows of a score file, a few thousand at a time."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.arrow_columns import strings_to_arrow, to_arrow
from difficulty_service.errors import StatisticsError
from difficulty_service.feature_store.store import FeatureStore
from difficulty_service.parallel import map_in_order, num_workers
from difficulty_service.scorers.kmeans import fit_kmeans, kmeans_distance
from difficulty_service.scorers.knn import NUM_NEIGHBOURS, knn_distance
from difficulty_service.scorers.mahalanobis import Distances, relative_mahalanobis
from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.leave_one_out import leave_one_out_rmd
from difficulty_service.statistics.products import (
    BLOCK_ROWS,
    CHUNK_ROWS,
    Workspace,
    chunk_ranges,
    one_thread_per_product,
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
    rivals = _rival_scores(store, scorers)
    score_piece = _PieceScorer(
        store=store,
        classes=classes,
        names=strings_to_arrow(classes.names),
        gaussians=gaussians,
        distances=relative_mahalanobis(gaussians).distances_of_block,
        left_out=all(store.description.get(key) == fitted_on.get(key) for key in SAME_ROWS),
        work=Workspace(),
    )

    num_samples, num_scored, labels = 0, 0, set[int]()
    with one_thread_per_product():
        for batch in map_in_order(score_piece, store.pieces(CHUNK_ROWS), num_workers()):
            if batch is None:
                continue
            for name, values in rivals.items():
                own = values[num_samples : num_samples + len(batch)]
                batch = batch.append_column(name, to_arrow(own))
            append(batch)
            num_samples += len(batch)
            num_scored += len(batch) - batch["rmd"].null_count
            labels.update(pc.unique(batch["label"]).to_pylist())
    warnings = [*gaussians.warnings, *_unfitted(labels, classes)]
    if num_scored < num_samples:
        warnings.append(f"{num_samples - num_scored} of {num_samples} samples have no rmd")
    return Scored(num_samples, num_scored, tuple(warnings))


@dataclass(frozen=True)
class _PieceScorer:
    """Makes the rows of a score file, on any thread, from what `FeatureStore.pieces` gives."""

    store: FeatureStore
    classes: Classes
    names: pa.StringArray
    gaussians: Gaussians
    distances: Callable[[Tensor, Tensor, Workspace], Distances]
    left_out: bool
    work: Workspace

    def __call__(self, piece: tuple[int, slice]) -> pa.RecordBatch | None:
        """All columns but those that need other samples; None where a piece has no rows."""
        shard, rows = piece
        part = self.store.open_part(shard, ["sample_id"], rows)
        if not len(part.labels):
            return None
        labels = self.classes.label_of[part.labels]
        block_rows = max(1, BLOCK_ROWS // self.store.runs) * self.store.runs
        # Features of several runs are needed once more after they are scored.
        allocate = self.work.rows if self.store.runs == 1 else torch.empty
        blocks = [
            self._columns(part.read_features(block, allocate), labels[block])
            for block in chunk_ranges(len(labels), block_rows)
        ]
        columns = {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}
        arrays = {name: to_arrow(values.numpy()) for name, values in columns.items()}
        arrays["sample_id"] = part.sample_ids.combine_chunks()[:: self.store.runs]
        arrays["label_name"] = pa.DictionaryArray.from_arrays(arrays["label"], self.names)
        return pa.record_batch(arrays)

    def _columns(self, features: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Columns of one block; the runs of a sample are averaged."""
        runs = self.store.runs
        fitted = torch.where(labels < self.classes.num_fitted, labels, -1)
        rows = self.distances(features, fitted, self.work)
        by_sample = {
            name: getattr(rows, name).view(-1, runs) for name in ("md", "md_agnostic", "rmd")
        }
        # Distances to two classes differ by a linear function of the features, so the margin of
        # the mean features is the mean margin.
        compared = rows
        if runs > 1:
            means = features.double().view(-1, runs, features.shape[1]).mean(dim=1)
            compared = self.distances(means, fitted[::runs], self.work)
        columns = {
            "label": labels[::runs].int(),
            **{name: values.mean(dim=1) for name, values in by_sample.items()},
            "nearest_label": compared.nearest_label.int(),
            "label_margin": compared.label_margin,
        }
        if runs > 1:
            columns["rmd_std"] = by_sample["rmd"].std(dim=1).float()
        if self.left_out:
            columns["rmd_loo"] = leave_one_out_rmd(
                self.gaussians, features, fitted, rows.md, rows.md_agnostic
            )
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
