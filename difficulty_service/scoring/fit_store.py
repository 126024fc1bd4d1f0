"""Gaussians, and what scores labels, fitted to a feature store a few thousand rows at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit_batches, pilot_rows
from difficulty_service.gaussians.products import (
    BATCH_ROWS,
    Workspace,
    block_rows,
    row_ranges,
    summed_rows,
)
from difficulty_service.scorers.suspicion import (
    POSTERIORS,
    LabelPosteriors,
    PosteriorOptions,
    fit_posteriors,
)
from difficulty_service.scoring.fitted_gaussians import FittedGaussians

PILOT_SHARDS = 8
"""Number of shards, evenly spaced over the store, whose first rows make the pilot."""

ShardSlice = tuple[int, slice]
"""A shard and some of its rows."""


def fit_store(store: FeatureSource, options: FitOptions) -> FittedGaussians:
    """Gaussians of a complete store, read shard by shard; the number of runs is the store's."""
    store.description.require_scorable()
    gaussians = fit_batches(
        StoreBatches(store),
        _pilot_rows(store),
        len(store.class_names),
        replace(options, runs=store.runs),
    )
    return FittedGaussians(gaussians, store.description)


@dataclass(frozen=True)
class StoreBatches:
    """All features of a complete store and their labels, as a source of batches."""

    store: FeatureSource

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.store.device

    def batches(self) -> Iterator[Sequence[ShardSlice]]:
        """Slices of the shards, about as many rows at a time as are summed in one go."""
        slices = self.store.slices(BATCH_ROWS)
        rows = summed_rows(self.store.num_shards * self.store.shard_rows)
        slices_per_batch = max(1, rows // min(BATCH_ROWS, self.store.shard_rows))
        while batch := list(islice(slices, slices_per_batch)):
            yield batch

    def read(self, batch: Sequence[ShardSlice], work: Workspace) -> tuple[Tensor, Iterator[Tensor]]:  # noqa: ARG002
        """Labels and features of some slices; the calling thread opens the files."""
        shards = [self.store.open_shard(shard, [], rows) for shard, rows in batch]
        blocks = (
            each.read_features(rows)
            for each in shards
            for rows in row_ranges(len(each.labels), block_rows(self.device))
        )
        return torch.cat([each.labels for each in shards]), blocks


def _pilot_rows(store: FeatureSource) -> Tensor:
    """Some rows from all over a store. Shape (rows, dim)."""
    chosen = sorted({int(shard) for shard in np.linspace(0, store.num_shards - 1, PILOT_SHARDS)})
    rows: list[Tensor] = []
    for shard in [*chosen, *range(store.num_shards)]:
        if shard not in chosen and any(map(len, rows)):
            break  # others are read only where the chosen ones hold nothing but bad images
        opened = store.open_shard(shard, [])
        rows.append(pilot_rows(opened.features(), len(chosen)).clone())  # or shards stay mapped
    return torch.cat(rows)


def fit_store_posteriors(
    store: FeatureSource,
    scorers: Sequence[str],
    matmul_dtype: torch.dtype,
    given: Tensor | None = None,
) -> LabelPosteriors | None:
    """Fits the scorers of labels among `scorers`; None where there are none.

    They are fitted to the samples that they score, also where Gaussians of other samples are given.
    The memory does not grow with the store. Labels that were `given` before others were verified
    are as for `PosteriorOptions`.
    """
    names = tuple(name for name in POSTERIORS if name in scorers)
    if not names:
        return None
    options = PosteriorOptions(
        names=names,
        num_classes=len(store.class_names),
        runs=store.runs,
        matmul_dtype=matmul_dtype,
        seed=store.description.seed,
        given=given,
    )
    return fit_posteriors(StoreBatches(store), options)
