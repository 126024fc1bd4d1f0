"""How well a score separates positives from negatives; larger score = more likely positive.

Everything depends on the order of the scores only, compared in float64, so any increasing map of
the scores gives the same numbers. Libraries that squash scores outside [0, 1] through a sigmoid
first lose that: scores near 400 all become 1, and the AUROC 0.5.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import MetricError
from trainer.metrics.predictions import as_array

Convention = Literal["first", "nearest"]

TRUE_POSITIVE_RATE = 0.95


def auroc(scores: Tensor, positive: Tensor) -> float:
    """Chance that a positive scores above a negative, a tie counting half.

    Args:
        scores: Larger = more likely positive. Shape (samples,).
        positive: True or 1 for a positive. Shape (samples,).

    Raises:
        MetricError: Only positives or only negatives, NaN scores, or shapes that differ.
    """
    hits, sizes = _groups_from_the_top(scores, positive)
    misses = sizes - hits
    beaten = misses.sum() - misses.cumsum() + misses / 2
    return float((hits * beaten).sum() / (hits.sum() * misses.sum()))


def aupr(scores: Tensor, positive: Tensor) -> float:
    """Average precision: the step-wise area, equal scores entering together.

    The trapezoid that some libraries take instead credits constant scores with 0.7 where two in
    five are positive; the steps give the 0.4 that guessing earns.

    Args:
        scores: Larger = more likely positive. Shape (samples,).
        positive: True or 1 for a positive. Shape (samples,).

    Raises:
        MetricError: Only positives or only negatives, NaN scores, or shapes that differ.
    """
    hits, sizes = _groups_from_the_top(scores, positive)
    precision = hits.cumsum() / sizes.cumsum()
    return float((hits * precision).sum() / hits.sum())


def fpr_at_95_tpr(scores: Tensor, positive: Tensor, convention: Convention = "first") -> float:
    """Share of negatives let through by the threshold that finds 95 % of the positives.

    Args:
        scores: Larger = more likely positive. Shape (samples,).
        positive: True or 1 for a positive. Shape (samples,).
        convention: "first": the highest threshold that finds at least 95 %, as OpenOOD and
            pytorch-ood. "nearest": the threshold whose rate is nearest to 95 %, of equally near
            ones the highest, as the code of correctness ranking (CRL); it may find fewer.
            torch-uncertainty takes the lowest of equally near ones.

    Raises:
        MetricError: Only positives or only negatives, NaN scores, or shapes that differ.
    """
    hits, sizes = _groups_from_the_top(scores, positive)
    found = hits.cumsum() / hits.sum()
    let_through = (sizes - hits).cumsum() / (sizes - hits).sum()
    if convention == "first":
        return float(let_through[np.argmax(found >= TRUE_POSITIVE_RATE)])
    if convention == "nearest":
        return float(let_through[np.argmin(np.abs(found - TRUE_POSITIVE_RATE))])
    raise MetricError(f'convention {convention!r} is neither "first" nor "nearest"')


def _groups_from_the_top(
    scores: Tensor, positive: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Positives and samples in every group of equal scores, from the largest score down."""
    values = as_array(scores).astype(np.float64)
    flags = as_array(positive).astype(bool)
    if values.ndim != 1 or values.shape != flags.shape:
        raise MetricError(
            f"scores of shape {values.shape} beside flags of shape {flags.shape}; "
            f"give one of each per sample"
        )
    if missing := int(np.isnan(values).sum()):
        raise MetricError(f"{missing} of {len(values)} scores are NaN; leave those samples out")
    num_positive = int(flags.sum())
    if num_positive in {0, len(flags)}:
        raise MetricError(
            f"{num_positive} of {len(flags)} samples are positive; there must be some of both kinds"
        )
    order = np.argsort(-values)
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    hits = np.add.reduceat(flags[order].astype(np.float64), starts)
    sizes = np.diff(np.r_[starts, len(ordered)]).astype(np.float64)
    return hits, sizes
