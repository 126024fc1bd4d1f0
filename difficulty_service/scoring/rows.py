"""The rows of a score file: the columns of each sample of a feature store."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.device_copies import fetch_all, send
from difficulty_service.base.errors import StatisticsError
from difficulty_service.base.plugins import function_of
from difficulty_service.base.tables import strings_to_arrow, to_arrow
from difficulty_service.base.threads import map_in_order
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.gaussians.leave_one_out import compare_left_out, leave_one_out_rmd
from difficulty_service.gaussians.products import (
    BATCH_ROWS,
    Workspace,
    block_rows,
    one_thread_per_product,
    row_ranges,
    threads_of,
)
from difficulty_service.scorers import ScorerInput
from difficulty_service.scorers.faiss_package import load_faiss
from difficulty_service.scorers.mahalanobis import Distances, relative_mahalanobis
from difficulty_service.scorers.suspicion import LabelPosteriors
from difficulty_service.scores.score_columns import LIKELIEST_CLASSES, SCORERS
from difficulty_service.scoring.duplicates import hash_rows
from difficulty_service.scoring.words import load_words
from difficulty_service.settings.options import ScorerOptions

NAMED_LABELS = ("label", "nearest_label", "suggested_label")
"""Columns of class indices, beside each of which is one of the names."""

HASH_COLUMN = "hash"
"""Column with a hash of the features, which the score file does not hold."""


@dataclass(frozen=True)
class Resources:
    """What a scorer of all samples may use.

    Attributes:
        weights: File of the CLIP that made the features; None for that of the hub.
        device: Device of the run; None where it has none.
    """

    weights: str | None = None
    device: torch.device | None = None


NO_RESOURCES = Resources()


@dataclass(frozen=True)
class Classes:
    """The classes of a score file: those of the Gaussians, then those only the data has.

    Attributes:
        label_of: Label in the score file of each label of the store. Shape (store classes,).
    """

    names: tuple[str, ...]
    num_fitted: int
    label_of: Tensor


def match_classes(store_names: Sequence[str], fitted_names: Sequence[str]) -> Classes:
    """Matches classes by name, so that two datasets may number them differently."""
    names = [*fitted_names, *(name for name in store_names if name not in set(fitted_names))]
    index = {name: position for position, name in enumerate(names)}
    label_of = torch.tensor([index[name] for name in store_names], dtype=torch.int64)
    return Classes(tuple(names), len(fitted_names), label_of)


def require_packages(options: ScorerOptions) -> None:
    """Raises MissingPackage where what is asked for needs a package that is not installed."""
    if any(SCORERS[name].package == "faiss" for name in options.scorers):
        load_faiss()
    if options.near_duplicates is not None:
        load_faiss("near_duplicates")


def score_rows(  # noqa: PLR0913 - each is another part of a fit
    store: FeatureSource,
    gaussians: Gaussians,
    classes: Classes,
    scorers: Sequence[str],
    *,
    left_out: bool,
    posteriors: LabelPosteriors | None = None,
    resources: Resources = NO_RESOURCES,
) -> Iterator[pa.RecordBatch]:
    """Scores every sample of a store: the columns of a score file that need no other samples.

    A few thousand rows at a time, in the order of the store, with a hash of the features of each
    sample in HASH_COLUMN unless it has several rows of features.

    Args:
        left_out: Whether the Gaussians were fitted to these samples, so that each sample can also
            be scored as if they had not been fitted to it.
        posteriors: What scores the labels; None for no such columns.
        resources: For scorers that need all samples.
    """
    at_once = _scores_of_all(store, scorers, resources)
    prepared = replace(gaussians, centre=None)  # because each block is prepared once
    score_slice = _SliceScorer(
        store=store,
        classes=classes,
        names=strings_to_arrow(classes.names),
        gaussians=prepared,
        prepare=gaussians.prepare,
        distances=relative_mahalanobis(prepared, store.device).distances_of_block,
        left_out=left_out,
        posteriors=posteriors,
        work=Workspace(),
    )
    first_row = 0
    with one_thread_per_product():
        workers = threads_of(store.device)
        for batch in map_in_order(score_slice, store.slices(BATCH_ROWS), workers):
            if batch is None:
                continue
            rows = slice(first_row, first_row + len(batch))
            for name, values in at_once.items():
                batch = batch.append_column(name, to_arrow(values[rows]))
            yield batch
            first_row = rows.stop


@dataclass(frozen=True)
class _SliceScorer:
    """Scores slices of shards; may be called by any thread."""

    store: FeatureSource
    classes: Classes
    names: pa.StringArray
    gaussians: Gaussians
    prepare: Callable[[Tensor], Tensor]
    distances: Callable[[Tensor, Tensor, Workspace], Distances]
    left_out: bool
    posteriors: LabelPosteriors | None
    work: Workspace

    def __call__(self, where: tuple[int, slice]) -> pa.RecordBatch | None:
        """All columns that need no other samples; None where the slice has no rows."""
        shard, rows = where
        opened = self.store.open_shard(shard, ["sample_id"], rows)
        if not len(opened.labels):
            return None
        labels = self.classes.label_of[opened.labels]
        at_once = max(1, block_rows(self.store.device) // self.store.runs) * self.store.runs
        blocks = [
            self._columns(opened.read_features(block), labels[block], opened.labels[block])
            for block in row_ranges(len(labels), at_once)
        ]
        columns = {name: torch.cat([block[name] for block in blocks]) for name in blocks[0]}
        arrays = {name: to_arrow(values.numpy()) for name, values in columns.items()}
        arrays["sample_id"] = opened.sample_ids[:: self.store.runs]
        known_by = {"suggested_label": "suspicion", **LIKELIEST_CLASSES}
        for label, number in known_by.items():
            if label in arrays:
                arrays[label] = pc.if_else(
                    arrays[number].is_valid(),
                    arrays[label],
                    pa.nulls(len(labels) // self.store.runs, pa.int32()),  # a scalar loads pandas
                )
        for name in NAMED_LABELS:
            if name in arrays:
                arrays[f"{name}_name"] = pa.DictionaryArray.from_arrays(arrays[name], self.names)
        return pa.record_batch(arrays)

    def _columns(self, features: Tensor, labels: Tensor, store_labels: Tensor) -> dict[str, Tensor]:
        """Columns of one block; the runs of a sample are averaged."""
        runs, device = self.store.runs, features.device
        hashes = [hash_rows(features)] if runs == 1 else []
        posteriors: dict[str, Tensor] = {}
        if self.posteriors is not None:
            own = send(store_labels[::runs].contiguous(), device)
            posteriors = self.posteriors.columns(features, own)
        features = self.prepare(features)
        fitted = torch.where(labels < self.classes.num_fitted, labels, -1)
        rows = self.distances(features, send(fitted, device), self.work)
        # All at once, because a GPU is waited for each time.
        found = iter(fetch_all([*rows.columns(), *posteriors.values(), *hashes]))
        rows = Distances(*islice(found, len(rows.columns())))
        posteriors = dict(zip(posteriors, islice(found, len(posteriors)), strict=True))
        for name in ("suggested_label", *LIKELIEST_CLASSES):
            if name in posteriors:
                posteriors[name] = self.classes.label_of[posteriors[name]].int()
        by_sample = {
            name: getattr(rows, name).view(-1, runs) for name in ("md", "md_agnostic", "rmd")
        }
        nearest_label, margins = self._compare_classes(features, fitted, rows)
        columns = {
            "label": labels[::runs].int(),
            **{name: values.mean(dim=1) for name, values in by_sample.items()},
            "nearest_label": nearest_label.int(),
            "label_margin": margins,
            **posteriors,
        }
        if hashes:
            columns[HASH_COLUMN] = next(found)
        else:
            columns["rmd_std"] = by_sample["rmd"].std(dim=1).float()
        if self.left_out:
            columns["rmd_loo"] = leave_one_out_rmd(
                self.gaussians, features, fitted, rows.md, rows.md_agnostic
            )
        return columns

    def _compare_classes(
        self, features: Tensor, labels: Tensor, rows: Distances
    ) -> tuple[Tensor, Tensor]:
        """The nearest label of each sample, and the mean of its margins over the runs.

        With a ridge there are few samples for what is estimated, and each would look more like its
        own class for having been fitted: there it is left out.
        """
        runs = self.store.runs
        if self.left_out and self.gaussians.within.ridge > 0:
            # Of few samples, and so on the CPU.
            return compare_left_out(self.gaussians, features.cpu(), labels, rows.md_agnostic)
        if runs == 1:
            return rows.nearest_label, rows.label_margin
        # The mean distances to two classes differ as the distances of the mean features do.
        means = features.double().view(-1, runs, features.shape[1]).mean(dim=1)
        nearest_label = self.distances(means, labels[::runs], self.work).nearest_label
        return nearest_label, rows.label_margin.view(-1, runs).mean(dim=1)


def _scores_of_all(
    store: FeatureSource, scorers: Sequence[str], resources: Resources
) -> dict[str, NDArray[Any]]:
    """The columns of those scorers that need all features at once; holds these in memory."""
    asked = [SCORERS[name] for name in scorers if SCORERS[name].compute is not None]
    if not asked:
        return {}
    cosines = None
    if any(scorer.needs_words for scorer in asked):
        cosines = load_words(store.description, store.class_names, resources.weights).cosines
    rows, labels = [], []
    for shard in range(store.num_shards):
        opened = store.open_shard(shard, [])
        features = opened.features()
        rows.append(features.view(-1, store.runs, features.shape[1]).mean(dim=1))
        labels.append(opened.labels[:: store.runs])
    samples = ScorerInput(
        torch.cat(rows).cpu(),
        torch.cat(labels).long(),
        len(store.class_names),
        store.description.seed,
        resources.device,
        cosines,
    )
    columns = {}
    for scorer in asked:
        values = np.asarray(function_of(str(scorer.compute))(samples))
        if values.shape != (len(samples.labels),) or values.dtype.kind != "f":
            raise StatisticsError(
                f"the scorer {scorer.name} gave {values.dtype} of shape {values.shape} for "
                f"{len(samples.labels)} samples, expected one floating-point number for each"
            )
        columns[scorer.name] = values
    return columns
