"""Gaussians, and what scores labels, fitted to a feature store a few thousand rows at a time."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit_chunks, pilot_rows
from difficulty_service.gaussians.products import (
    CHUNK_ROWS,
    Workspace,
    block_rows,
    chunk_ranges,
    summed_rows,
)
from difficulty_service.scorers.suspicion import (
    POSTERIORS,
    LabelPosteriors,
    PosteriorOptions,
    fit_posteriors,
)
from difficulty_service.scoring.fitted_gaussians import FittedGaussians

PILOT_PARTS = 8
"""Number of parts, evenly spaced over the store, whose first rows make the pilot."""

Piece = tuple[int, slice]
"""A shard and some rows of its part."""


def fit_store(store: FeatureSource, options: FitOptions) -> FittedGaussians:
    """Gaussians of a complete store, read part by part; the number of runs is the store's."""
    store.description.require_scorable()
    gaussians = fit_chunks(
        StoreChunks(store),
        _pilot_rows(store),
        len(store.class_names),
        replace(options, runs=store.runs),
    )
    return FittedGaussians(gaussians, store.description)


@dataclass(frozen=True)
class StoreChunks:
    """All features of a complete store and their labels, as a source of chunks."""

    store: FeatureSource

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.store.device

    def chunks(self) -> Iterator[Sequence[Piece]]:
        """Pieces of the store, about as many rows at a time as are summed in one go."""
        pieces = self.store.pieces(CHUNK_ROWS)
        rows = summed_rows(self.store.num_parts * self.store.part_rows)
        pieces_per_chunk = max(1, rows // min(CHUNK_ROWS, self.store.part_rows))
        while chunk := list(islice(pieces, pieces_per_chunk)):
            yield chunk

    def read(self, chunk: Sequence[Piece], work: Workspace) -> tuple[Tensor, Iterator[Tensor]]:  # noqa: ARG002
        """Labels and features of some pieces; the calling thread opens the files."""
        parts = [self.store.open_part(shard, [], rows) for shard, rows in chunk]
        blocks = (
            part.read_features(rows)
            for part in parts
            for rows in chunk_ranges(len(part.labels), block_rows(self.device))
        )
        return torch.cat([part.labels for part in parts]), blocks


def _pilot_rows(store: FeatureSource) -> Tensor:
    """Some rows from all over a store. Shape (rows, dim)."""
    chosen = sorted({int(shard) for shard in np.linspace(0, store.num_parts - 1, PILOT_PARTS)})
    rows: list[Tensor] = []
    for shard in [*chosen, *range(store.num_parts)]:
        if shard not in chosen and any(map(len, rows)):
            break  # the other parts are read only where the chosen ones hold nothing but bad images
        part = store.open_part(shard, [])
        rows.append(pilot_rows(part.features(), len(chosen)).clone())  # or parts stay mapped
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
    return fit_posteriors(StoreChunks(store), options)
