"""Fitting and scoring of features on a pretended GPU."""

import warnings
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from difficulty_service import score
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scorers import suspicion
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scorers.near_copies import near_pairs_between
from difficulty_service.scoring.duplicates import hash_rows
from difficulty_service.scoring.fit_store import FittedGaussians, fit_store
from tests.pretend.counting import counted

NUM_CLASSES, DIM = 4, 16
CUDA = torch.device("cuda")


def fit_and_score(num_samples: int, options: dict[str, Any]) -> dict[str, Any]:
    """What a fit and a score wait for, and the largest difference to the RMD of the CPU."""
    features, labels = blobs(num_samples)
    there = features.to(CUDA)
    made: dict[str, Any] = {}

    def fit_there() -> None:
        made["gaussians"] = fit(there, labels.to(CUDA), NUM_CLASSES, FitOptions(**options))

    def score_there() -> None:
        scorer = relative_mahalanobis(made["gaussians"], CUDA)
        made["rmd"] = scorer.distances(there, labels).rmd

    counts = {"fit": counted(fit_there), "score": counted(score_there)}
    gaussians = fit(features, labels, NUM_CLASSES, FitOptions(**options))
    rmd = relative_mahalanobis(gaussians).distances(features, labels).rmd
    return {**counts, "apart": float((made["rmd"] - rmd).abs().max() / rmd.abs().max())}


def search_near_copies(tiles: int) -> dict[str, Any]:
    """What a search for near copies waits for in each tile, and whether the CPU finds the same."""
    from difficulty_service.scorers import near_copies

    features = torch.nn.functional.normalize(blobs(256 * tiles)[0])
    near_copies.ROWS_AT_ONCE, before = 256, near_copies.ROWS_AT_ONCE

    def pairs(queries: Tensor, references: Tensor) -> set[tuple[int, int]]:
        found = near_pairs_between(queries, references, 0.9)
        return {
            pair
            for rows, others, _ in found
            for pair in zip(rows.tolist(), others.tolist(), strict=True)
        }

    there = features.to(CUDA)
    found: dict[str, set[tuple[int, int]]] = {}

    def search() -> None:
        found["there"] = pairs(there, there[:256])

    try:
        counts = counted(search)
        found["here"] = pairs(features, features[:256])
    finally:
        near_copies.ROWS_AT_ONCE = before
    return {**counts, "same": found["there"] == found["here"], "pairs": len(found["here"])}


def score_tensors(
    num_samples: int, options: dict[str, Any], covariance_samples: tuple[int, int] = (64, 256)
) -> dict[str, Any]:
    """What `ds.score` of tensors waits for, and how far its columns are from those of the CPU.

    A row has no number and another one is a copy. The difference of a column is relative to its
    largest value.

    Args:
        covariance_samples: Fewest and most samples for each dimension of a covariance.
    """
    features, labels = blobs(num_samples, apart=0.8)
    features[NUM_CLASSES] = features[0]  # of the same class
    features[2 * NUM_CLASSES] = torch.nan
    there, labels_there = features.to(CUDA), labels.to(CUDA)
    tables: list[pa.Table] = []

    def score_there() -> None:
        tables.append(score(there, labels_there, **options).to_arrow())

    usual = suspicion.COVARIANCE_SAMPLES_PER_DIMENSION
    suspicion.COVARIANCE_SAMPLES_PER_DIMENSION = covariance_samples
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):
            counts = counted(score_there)
            tables.append(score(features, labels, **options).to_arrow())
    finally:
        suspicion.COVARIANCE_SAMPLES_PER_DIMENSION = usual
    names = tables[1].column_names
    return {
        **counts,
        "apart": {name: apart_of(*(table[name] for table in tables)) for name in names},
    }


def score_without_room() -> dict[str, Any]:
    """The scores of tensors on a GPU without memory, beside those of the CPU, and what is said."""
    features, labels = blobs(200)

    def fit_where_there_is_room(source: FeatureSource, options: FitOptions) -> FittedGaussians:
        if source.device.type != "cpu":
            raise torch.OutOfMemoryError("out of memory")
        return fit_store(source, options)

    with (
        patch("difficulty_service.interface.score.fit_store", fit_where_there_is_room),
        warnings.catch_warnings(record=True, action="always") as told,
    ):
        found = score(features.to(CUDA), labels.to(CUDA)).to_arrow()
    expected = score(features, labels).to_arrow()
    return {"same": found.equals(expected), "told": [str(each.message) for each in told]}


def apart_of(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> float:
    """The largest difference relative to the largest number; 0 or 1 of what are no numbers."""
    if not pa.types.is_floating(theirs.type):
        return float(ours.to_pylist() != theirs.to_pylist())
    one, other = (column.to_numpy() for column in (ours, theirs))
    np.testing.assert_array_equal(np.isnan(one), np.isnan(other))
    return float(np.nanmax(np.abs(one - other)) / np.nanmax(np.abs(other)))


def hash_there(dim: int, dtype: str) -> list[list[int]]:
    """The hashes of some rows by a GPU, and by the CPU."""
    rows = torch.randn(5, dim, generator=torch.Generator().manual_seed(0))
    rows = rows.to(getattr(torch, dtype))
    return [hash_rows(rows.to(CUDA)).tolist(), hash_rows(rows).tolist()]


def blobs(num_samples: int, apart: float = 2.0) -> tuple[Tensor, Tensor]:
    """Classes whose means are so many deviations apart in each direction."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_samples) % NUM_CLASSES
    means = apart * torch.randn(NUM_CLASSES, DIM, generator=generator)
    return means[labels] + torch.randn(num_samples, DIM, generator=generator), labels
