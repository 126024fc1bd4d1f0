"""How well a score separates positives from negatives; a larger score is more likely positive.

Only the order of the scores matters, in float64, so any increasing function of the scores gives
the same numbers. Libraries that apply a sigmoid to scores outside [0, 1] lose this property:
scores near 400 all become 1, and the AUROC becomes 0.5.
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
    """Probability that a positive scores above a negative; a tie counts half.

    Args:
        scores: Scores, larger is more likely positive. Shape (samples,).
        positive: True or 1 for positives. Shape (samples,).

    Raises:
        MetricError: All samples are positive or all are negative, scores are NaN, or shapes differ.
    """
    hits, sizes = _groups_from_the_top(scores, positive)
    misses = sizes - hits
    lower_negatives = misses.sum() - misses.cumsum() + misses / 2
    return float((hits * lower_negatives).sum() / (hits.sum() * misses.sum()))


def aupr(scores: Tensor, positive: Tensor) -> float:
    """Average precision: the step-wise area under the precision-recall curve, with ties grouped.

    The trapezoidal rule of some libraries gives constant scores 0.7 where two in five samples are
    positive; the step-wise area gives 0.4, the value of guessing.

    Args:
        scores: Scores, larger is more likely positive. Shape (samples,).
        positive: True or 1 for positives. Shape (samples,).

    Raises:
        MetricError: All samples are positive or all are negative, scores are NaN, or shapes differ.
    """
    hits, sizes = _groups_from_the_top(scores, positive)
    precision = hits.cumsum() / sizes.cumsum()
    return float((hits * precision).sum() / hits.sum())


def fpr_at_95_tpr(scores: Tensor, positive: Tensor, convention: Convention = "first") -> float:
    """Fraction of negatives above the threshold that detects 95 % of the positives.

    Args:
        scores: Scores, larger is more likely positive. Shape (samples,).
        positive: True or 1 for positives. Shape (samples,).
        convention: "first": the highest threshold that detects at least 95 %, as in OpenOOD and
            pytorch-ood. "nearest": the threshold whose rate is nearest to 95 %, the highest among
            equals, as in the code of correctness ranking (CRL); it may detect fewer.
            torch-uncertainty takes the lowest among equals.

    Raises:
        MetricError: All samples are positive or all are negative, scores are NaN, or shapes differ.
    """
    hits, sizes = _groups_from_the_top(scores, positive)
    true_positive_rates = hits.cumsum() / hits.sum()
    false_positive_rates = (sizes - hits).cumsum() / (sizes - hits).sum()
    if convention == "first":
        return float(false_positive_rates[np.argmax(true_positive_rates >= TRUE_POSITIVE_RATE)])
    if convention == "nearest":
        distances = np.abs(true_positive_rates - TRUE_POSITIVE_RATE)
        return float(false_positive_rates[np.argmin(distances)])
    raise MetricError(
        f'convention {convention!r} is neither "first" nor "nearest"', parameter="convention"
    )


def _groups_from_the_top(
    scores: Tensor, positive: Tensor
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Numbers of positives and of samples in each group of equal scores, in descending order."""
    values = as_array(scores).astype(np.float64)
    flags = as_array(positive).astype(bool)
    if values.ndim != 1 or values.shape != flags.shape:
        raise MetricError(
            f"scores of shape {values.shape} beside flags of shape {flags.shape}",
            "give one of each per sample",
        )
    if missing := int(np.isnan(values).sum()):
        raise MetricError(f"{missing} of {len(values)} scores are NaN", "leave those samples out")
    num_positive = int(flags.sum())
    if num_positive in {0, len(flags)}:
        raise MetricError(
            f"{num_positive} of {len(flags)} samples are positive",
            "there must be some of both kinds",
        )
    order = np.argsort(-values)
    ordered = values[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    hits = np.add.reduceat(flags[order].astype(np.float64), starts)
    sizes = np.diff(np.r_[starts, len(ordered)]).astype(np.float64)
    return hits, sizes
