"""How well a score separates positives from negatives; a larger score is more likely positive.

Only the order of the scores matters, in float64, so any increasing function of the scores gives
the same numbers. Libraries that apply a sigmoid to scores outside [0, 1] lose this property:
scores near 400 all become 1, and the AUROC becomes 0.5.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.predictions import as_array

Convention = Literal["first", "nearest", "nearest_corner"]

CONVENTIONS: tuple[Convention, ...] = ("first", "nearest", "nearest_corner")

TRUE_POSITIVE_RATE = 0.95


@dataclass(frozen=True)
class RocCurve:
    """The points of a ROC curve, from (0, 0) to (1, 1), without those on a straight stretch.

    Attributes:
        false_positive_rates: Fraction of negatives above each threshold. Shape (points,).
        true_positive_rates: Fraction of positives above each threshold. Shape (points,).
    """

    false_positive_rates: NDArray[np.float64]
    true_positive_rates: NDArray[np.float64]


@dataclass(frozen=True)
class RankedGroups:
    """Samples in groups of equal score, in descending order of the score; one or many rankings.

    Attributes:
        hits: Number of positives in each group. Shape (..., groups).
        sizes: Number of samples in each group. Above 0, but for zeros behind the groups of a
            ranking that has fewer than others. Shape (..., groups).
    """

    hits: NDArray[np.float64]
    sizes: NDArray[np.float64]

    @property
    def misses(self) -> NDArray[np.float64]:
        """Number of negatives in each group. Shape (..., groups)."""
        return self.sizes - self.hits

    @property
    def reversed(self) -> "RankedGroups":
        """The groups by the opposite score, with the negatives as the positives."""
        return RankedGroups(self.misses[..., ::-1], self.sizes[..., ::-1])

    @property
    def auroc(self) -> NDArray[np.float64]:
        """Probability that a positive scores above a negative; a tie counts half. Shape (...)."""
        hits, misses = self.hits, self.misses
        positives, negatives = hits.sum(axis=-1), misses.sum(axis=-1)
        lower_negatives = negatives[..., None] - misses.cumsum(axis=-1) + misses / 2
        return (hits * lower_negatives).sum(axis=-1) / (positives * negatives)

    @property
    def aupr(self) -> NDArray[np.float64]:
        """Average precision; see `aupr`. Shape (...)."""
        # The first groups of a reversed ranking may be empty.
        precision = self.hits.cumsum(axis=-1) / np.maximum(self.sizes.cumsum(axis=-1), 1)
        return (self.hits * precision).sum(axis=-1) / self.hits.sum(axis=-1)

    @property
    def roc_curve(self) -> RocCurve:
        """The ROC curve of one ranking, whose area is the AUROC."""
        hits, misses = self.hits, self.misses
        # Counts are whole numbers, so that parallel steps are found exactly.
        turns = hits[:-1] * misses[1:] != hits[1:] * misses[:-1]
        corners = np.r_[True, turns, True]
        return RocCurve(
            false_positive_rates=(np.r_[0, misses.cumsum()] / misses.sum())[corners],
            true_positive_rates=(np.r_[0, hits.cumsum()] / hits.sum())[corners],
        )

    def fpr_at_95_tpr(self, convention: Convention = "first") -> NDArray[np.float64]:
        """False positive rate at a true positive rate of 95 %; see `fpr_at_95_tpr`. Shape (...)."""
        hits, misses = self.hits, self.misses
        true_positive_rates = hits.cumsum(axis=-1) / hits.sum(axis=-1, keepdims=True)
        distances = np.abs(true_positive_rates - TRUE_POSITIVE_RATE)
        if convention == "first":
            chosen = np.argmax(true_positive_rates >= TRUE_POSITIVE_RATE, axis=-1)
        elif convention == "nearest":
            chosen = np.argmin(distances, axis=-1)
        elif convention == "nearest_corner":
            # A point between two equal steps lies on a straight stretch of the curve.
            straight = np.zeros(hits.shape, bool)
            straight[..., 1:-1] = (hits[..., 1:-1] == hits[..., 2:]) & (
                misses[..., 1:-1] == misses[..., 2:]
            )
            chosen = np.argmin(np.where(straight, np.inf, distances), axis=-1)
        else:
            raise MetricError(
                f"convention {convention!r} is unknown",
                f"give one of {', '.join(CONVENTIONS)}",
                parameter="convention",
            )
        above = np.take_along_axis(misses.cumsum(axis=-1), chosen[..., None], axis=-1)[..., 0]
        return above / misses.sum(axis=-1)


def auroc(scores: Tensor, positive: Tensor) -> float:
    """Probability that a positive scores above a negative; a tie counts half.

    Args:
        scores: Scores, larger is more likely positive. Shape (samples,).
        positive: True or 1 for positives. Shape (samples,).

    Raises:
        MetricError: All samples are positive or all are negative, scores are NaN, or shapes differ.
    """
    return float(ranked_groups(scores, positive).auroc)


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
    return float(ranked_groups(scores, positive).aupr)


def fpr_at_95_tpr(scores: Tensor, positive: Tensor, convention: Convention = "first") -> float:
    """Fraction of negatives above the threshold that detects 95 % of the positives.

    Args:
        scores: Scores, larger is more likely positive. Shape (samples,).
        positive: True or 1 for positives. Shape (samples,).
        convention: "first": the highest threshold that detects at least 95 %, as in OpenOOD and
            pytorch-ood. "nearest": the threshold whose rate is nearest to 95 %, the highest among
            equals; it may detect fewer. torch-uncertainty takes the lowest among equals.
            "nearest_corner": the nearest of the corners of the ROC curve only, as in the code of
            correctness ranking (CRL), whose `roc_curve` of scikit-learn drops the points between
            two equal steps; the numbers of the CRL paper are of this kind.

    Raises:
        MetricError: All samples are positive or all are negative, scores are NaN, or shapes differ.
    """
    return float(ranked_groups(scores, positive).fpr_at_95_tpr(convention))


def roc_curve(scores: Tensor, positive: Tensor) -> RocCurve:
    """True over false positive rate for every threshold; arguments and errors as in `auroc`."""
    return ranked_groups(scores, positive).roc_curve


def ranked_groups(scores: Tensor, positive: Tensor) -> RankedGroups:
    """Groups samples by equal score, in descending order; arguments and errors as in `auroc`."""
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
    return RankedGroups(hits, sizes)
