"""R-AUROC: whether uncertainties tell for which samples the nearest neighbour is of their class."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.base.errors import MetricError
from trainer.metrics.ranking import auroc

QUERY_ROWS, OTHER_ROWS = 1024, 8192
"""Rows of a block of similarities; the product of both bounds the memory, about 32 MiB."""

CHEAP_SAMPLES = 20_000
"""Number of samples up to which a search for all neighbours takes seconds."""


@dataclass(frozen=True)
class Retrieval:
    """How well uncertainties predict the result of a search for the nearest neighbour.

    Attributes:
        r_auroc: Probability that a sample whose neighbour is of its class is less uncertain than
            one whose neighbour is not; a tie counts half. None where there is only one kind.
        recall_at_1: Fraction of samples whose nearest neighbour is of their class.
    """

    r_auroc: float | None
    recall_at_1: float
    num_samples: int


def evaluate_retrieval(uncertainties: Tensor, features: Tensor, labels: Tensor) -> Retrieval:
    """Computes the R-AUROC of Kirchhof et al. (2023), to which only order matters, and recall at 1.

    It needs no classifier of the classes of the samples, so that it also measures uncertainties on
    datasets other than the one the head was trained on.
    """
    if not len(uncertainties) == len(features) == len(labels):
        raise MetricError(
            f"{len(uncertainties)} uncertainties, {len(features)} features and {len(labels)} "
            "labels",
            "give one of each per sample",
        )
    neighbours = nearest_neighbours(features)
    correct = labels.cpu()[neighbours] == labels.cpu()
    recall = float(correct.double().mean())
    value = auroc(-uncertainties.cpu(), correct) if 0 < recall < 1 else None
    return Retrieval(value, recall, len(labels))


def nearest_neighbours(features: Tensor) -> Tensor:
    """Finds the other sample of highest cosine similarity, the first one among equals.

    A sample is never its own neighbour, also where another one has the same features. All-zero
    features are at right angles to all others. Types other than float64 are converted to float32.
    Time grows with the square of the number of samples, memory does not.
    """
    if len(features) < 2:  # noqa: PLR2004 - a sample and its neighbour
        raise MetricError(
            f"{len(features)} samples have no nearest neighbours", "give two samples or more"
        )
    if num_bad := int((~features.isfinite().all(dim=1)).sum()):
        raise MetricError(
            f"features of {num_bad} of {len(features)} samples are NaN or infinite",
            "leave those samples out",
        )
    directions = _directions(features)
    parts = [_nearest(directions, start) for start in range(0, len(features), QUERY_ROWS)]
    return torch.cat(parts).cpu()


def _directions(features: Tensor) -> Tensor:
    """Features of length 1; zeros where they are all zero. Shape (samples, dim)."""
    wide = features if features.dtype == torch.float64 else features.float()
    # The largest value first, because squares of very large or small ones are not finite or 0.
    largest = wide.abs().amax(dim=1, keepdim=True)
    return F.normalize(wide / torch.where(largest > 0, largest, 1), dim=1)


def _nearest(directions: Tensor, start: int) -> Tensor:
    """The neighbours of a block of samples. Shape (samples of the block,)."""
    queries = directions[start : start + QUERY_ROWS]
    rows = torch.arange(len(queries), device=queries.device)
    best = queries.new_full((len(queries),), -torch.inf)
    positions = torch.zeros_like(rows)
    for first in range(0, len(directions), OTHER_ROWS):
        similarities = queries @ directions[first : first + OTHER_ROWS].T
        own = rows + start - first
        inside = (own >= 0) & (own < similarities.shape[1])
        similarities[rows[inside], own[inside]] = -torch.inf
        highest, column = similarities.max(dim=1)
        is_nearer = highest > best
        best = torch.where(is_nearer, highest, best)
        positions = torch.where(is_nearer, column + first, positions)
    return positions
