"""From a feature store to Gaussians and a score file, a few thousand rows at a time."""

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service.feature_store.store import FeatureStore
from difficulty_service.score_file import write_scores
from difficulty_service.scoring.ranking import unranked_scores
from difficulty_service.scoring.score_store import Scored, score_store
from difficulty_service.statistics.factor import Factor
from difficulty_service.statistics.fit_options import FitOptions
from difficulty_service.statistics.fitting import fit_chunks, pilot_rows
from difficulty_service.statistics.gaussian import Gaussians
from difficulty_service.statistics.moments import ReadChunk
from difficulty_service.statistics.products import (
    BLOCK_ROWS,
    CHUNK_ROWS,
    Workspace,
    chunk_ranges,
    summed_rows,
)

PILOT_PARTS = 8
"""Parts, evenly spaced over the store, whose first rows make the pilot."""

ROWS_PER_GROUP = 1 << 16
"""Rows of a row group of the score file."""


def fit_store(store: FeatureStore, options: FitOptions) -> Gaussians:
    """Gaussians of all features of a complete store, read part by part.

    Raises:
        StatisticsError: The features allow no trustworthy Gaussian; the message says why.
    """
    chunks = partial(chunks_of_store, store)
    return fit_chunks(chunks, _pilot_rows(store), len(store.class_names), options)


def chunks_of_store(store: FeatureStore) -> Iterator[ReadChunk]:
    """All features of a complete store and their labels, in chunks."""
    pieces = store.pieces(CHUNK_ROWS)
    rows = summed_rows(store.num_parts * store.part_rows)
    pieces_per_chunk = max(1, rows // min(CHUNK_ROWS, store.part_rows))
    while chunk := list(islice(pieces, pieces_per_chunk)):
        yield partial(_read_chunk, store, chunk)


def _read_chunk(
    store: FeatureStore, pieces: Sequence[tuple[int, slice]], work: Workspace
) -> tuple[Tensor, Iterator[Tensor]]:
    """Some pieces of a store; files are opened by the thread that will read them."""
    parts = [store.open_part(shard, [], rows) for shard, rows in pieces]
    blocks = (
        part.read_features(rows, work.rows)
        for part in parts
        for rows in chunk_ranges(len(part.labels), BLOCK_ROWS)
    )
    return torch.cat([part.labels for part in parts]), blocks


def write_store_scores(
    store: FeatureStore,
    out: Path,
    gaussians: Gaussians,
    fitted_on: dict[str, Any],
    scorers: Sequence[str],
) -> Scored:
    """Scores a store and writes the score file, in memory that does not grow with the store."""
    with unranked_scores(out.parent) as rows:
        scored = score_store(store, gaussians, fitted_on, scorers, rows.append)
        described = provenance(store, gaussians, fitted_on, scored)
        write_scores(out, grouped(rows.ranked(), ROWS_PER_GROUP), described)
    return scored


def grouped(batches: Iterable[pa.RecordBatch], num_rows: int) -> Iterator[pa.Table]:
    """Batches that follow each other as tables of at least so many rows; the last may be short."""
    held: list[pa.RecordBatch] = []
    for batch in batches:
        held.append(batch)
        if sum(map(len, held)) >= num_rows:
            yield pa.Table.from_batches(held)
            held = []
    if held:
        yield pa.Table.from_batches(held)


def provenance(
    store: FeatureStore, gaussians: Gaussians, fitted_on: dict[str, Any], scored: Scored
) -> dict[str, Any]:
    """What a score file says about where it came from."""
    shrinkage = gaussians.options.shrinkage
    return {
        **{key: value for key, value in store.description.items() if key != "num_shards"},
        "fitted_on": {key: fitted_on[key] for key in ("dataset", "fingerprint", "num_samples")},
        "shrinkage": shrinkage,
        "products": gaussians.options.matmul_dtype,
        "reliable": gaussians.reliable,
        **describe_factor("within", gaussians.within),
        **describe_factor("agnostic", gaussians.agnostic),
        "num_scored": scored.num_scored,
        "num_bad_images": int(store.description["num_samples"]) - scored.num_samples,
        "warnings": list(scored.warnings),
    }


def describe_factor(name: str, factor: Factor) -> dict[str, Any]:
    """How one covariance came out; a singular one has no condition number that JSON can hold."""
    return {
        f"{name}_intensity": factor.intensity,
        f"{name}_condition": factor.condition if math.isfinite(factor.condition) else None,
        f"{name}_rank": factor.rank,
    }


def _pilot_rows(store: FeatureStore) -> Tensor:
    """Some rows from all over a store. Shape (rows, dim)."""
    chosen = sorted({int(shard) for shard in np.linspace(0, store.num_parts - 1, PILOT_PARTS)})
    rows: list[Tensor] = []
    work = Workspace()
    for shard in [*chosen, *range(store.num_parts)]:
        if shard not in chosen and any(map(len, rows)):
            break  # the other parts are for a store whose chosen ones hold bad images only
        part = store.open_part(shard, [])
        features = part.read_features(slice(0, len(part.labels)), work.rows)
        # A copy, for the next part is read to the same memory.
        rows.append(pilot_rows(features, len(chosen)).clone())
    return torch.cat(rows)
