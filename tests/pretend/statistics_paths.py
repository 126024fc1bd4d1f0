"""Fitting and scoring of features on a pretended GPU."""

from typing import Any

import torch
from torch import Tensor

from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.scorers.near_copies import near_pairs_between
from tests.pretend.counting import counted

NUM_CLASSES, DIM = 4, 16
CUDA = torch.device("cuda")


def fit_and_score(num_samples: int, options: dict[str, Any]) -> dict[str, Any]:
    """What a fit and a score wait for, and the largest difference to the RMD of the CPU."""
    features, labels = _blobs(num_samples)
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

    features = torch.nn.functional.normalize(_blobs(256 * tiles)[0])
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


def _blobs(num_samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(num_samples) % NUM_CLASSES
    means = 2 * torch.randn(NUM_CLASSES, DIM, generator=generator)
    return means[labels] + torch.randn(num_samples, DIM, generator=generator), labels
