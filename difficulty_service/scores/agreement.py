"""Measures of agreement between scores and ranks, flags or errors."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from difficulty_service.base.errors import AuditError

MIN_RANKED_SAMPLES = 4
"""Minimum number of samples for the interval of a rank correlation."""

NORMAL_95 = 1.959964
"""Number of standard deviations around the mean that cover 95 % of a normal distribution."""


@dataclass(frozen=True)
class RankAgreement:
    """Whether samples with larger values score harder.

    Attributes:
        spearman: Spearman's rank correlation with averaged ties; 1 for the same order.
        low: Lower end of the 95 % interval.
        high: Upper end of the 95 % interval.
    """

    num_samples: int
    spearman: float
    low: float
    high: float

    def lines(self) -> list[str]:
        """The result in words."""
        return [
            f"Spearman's rank correlation {self.spearman:.3f}, 95 % interval "
            f"{self.low:.3f} to {self.high:.3f} ({self.num_samples:,} samples)"
        ]


@dataclass(frozen=True)
class FlagAgreement:
    """Whether flagged samples score harder than the others.

    Attributes:
        auroc: Probability that a flagged sample scores harder than another; ties count half.
        average_precision: Mean precision over the flagged samples; equal scores share a threshold.
        recall: Share of the flagged samples among the `num_flagged` hardest samples.
    """

    num_samples: int
    num_flagged: int
    auroc: float
    average_precision: float
    recall: float

    @property
    def base_rate(self) -> float:
        """Share of flagged samples: average precision and recall of random scores."""
        return self.num_flagged / self.num_samples

    def lines(self) -> list[str]:
        """The result in words."""
        return [
            f"{self.num_flagged:,} of {self.num_samples:,} samples are flagged "
            f"({self.base_rate:.1%})",
            f"AUROC {self.auroc:.3f}: chance that a flagged sample scores harder than another",
            f"average precision {self.average_precision:.3f}, by chance {self.base_rate:.3f}",
            f"the {self.num_flagged:,} hardest hold {self.recall:.1%} of the flagged, "
            f"by chance {self.base_rate:.1%}",
        ]


@dataclass(frozen=True)
class ErrorRateByBin:
    """Error rate from the easiest to the hardest samples, in bins of equal size.

    Attributes:
        counts: Number of samples in each bin; they differ by at most one. Shape (bins,).
        lowest: Smallest score in each bin. Shape (bins,).
        highest: Largest score in each bin. Shape (bins,).
        error_rates: Share of errors in each bin. Shape (bins,).
    """

    counts: NDArray[np.int64]
    lowest: NDArray[np.float64]
    highest: NDArray[np.float64]
    error_rates: NDArray[np.float64]

    @property
    def error_rate(self) -> float:
        """Share of errors among all samples."""
        return float(np.average(self.error_rates, weights=self.counts))

    def lines(self) -> list[str]:
        """The result as a table."""
        rows = zip(self.counts, self.lowest, self.highest, self.error_rates, strict=True)
        return [
            f"error rate {self.error_rates[0]:.2%} in the easiest bin, "
            f"{self.error_rates[-1]:.2%} in the hardest, {self.error_rate:.2%} in all",
            f"{'bin':>4} {'samples':>9} {'scores from':>12} {'to':>12} {'error rate':>11}",
            *(
                f"{number:>4} {count:>9,} {low:>12.5g} {high:>12.5g} {rate:>11.2%}"
                for number, (count, low, high, rate) in enumerate(rows, start=1)
            ),
        ]


def rank_agreement(scores: ArrayLike, values: ArrayLike) -> RankAgreement:
    """Spearman's rank correlation of scores with values.

    The interval is Fisher's, with the variance of Bonett and Wright (2000) for ranks.

    Args:
        scores: Larger is harder. Shape (samples,).
        values: Expected to be larger for harder samples. Shape (samples,).

    Raises:
        AuditError: There are too few samples, all scores or all values are equal, or some are NaN.
    """
    pair = _paired(scores, values)
    if len(pair[0]) < MIN_RANKED_SAMPLES:
        raise AuditError(
            f"{len(pair[0])} samples are too few for a rank correlation",
            f"it needs at least {MIN_RANKED_SAMPLES}",
        )
    for name, numbers in zip(("scores", "values"), pair, strict=True):
        if numbers.min() == numbers.max():
            raise AuditError(f"all {len(numbers)} {name} are {numbers[0]:g}, so they have no order")
    spearman = float(np.corrcoef(ranks(pair[0]), ranks(pair[1]))[0, 1])
    spearman = min(1.0, max(-1.0, spearman))
    if abs(spearman) == 1:
        return RankAgreement(len(pair[0]), spearman, spearman, spearman)
    half_width = NORMAL_95 * np.sqrt((1 + spearman**2 / 2) / (len(pair[0]) - 3))
    low, high = np.tanh(np.arctanh(spearman) + np.array([-half_width, half_width]))
    return RankAgreement(len(pair[0]), spearman, float(low), float(high))


def flag_agreement(scores: ArrayLike, flags: ArrayLike) -> FlagAgreement:
    """How well scores find flagged samples; invariant under increasing maps of the scores.

    Args:
        scores: Larger is harder. Shape (samples,).
        flags: True or nonzero for a flagged sample. Shape (samples,).

    Raises:
        AuditError: No sample or every sample is flagged, or some values are NaN.
    """
    scores, numbers = _paired(scores, flags)
    flagged = numbers != 0
    num_flagged = int(flagged.sum())
    if num_flagged in (0, len(flagged)):
        raise AuditError(
            f"{num_flagged} of {len(flagged)} samples are flagged",
            "there must be flagged and other samples",
        )
    rank_sum = ranks(scores)[flagged].sum()
    wins = rank_sum - num_flagged * (num_flagged + 1) / 2
    _, group = np.unique(-scores, return_inverse=True)
    group_sizes = np.bincount(group)
    group_hits = np.bincount(group, weights=flagged)
    taken, hits = group_sizes.cumsum(), group_hits.cumsum()
    # In the group of equal scores at the limit, each sample is included with the same chance.
    share = np.clip((num_flagged - (taken - group_sizes)) / group_sizes, 0, 1)
    return FlagAgreement(
        num_samples=len(flagged),
        num_flagged=num_flagged,
        auroc=float(wins / (num_flagged * (len(flagged) - num_flagged))),
        average_precision=float((group_hits * hits / taken).sum() / num_flagged),
        recall=float((share * group_hits).sum() / num_flagged),
    )


def error_rate_by_bin(scores: ArrayLike, errors: ArrayLike, num_bins: int = 20) -> ErrorRateByBin:
    """Error rate in bins of equal size, from the easiest samples to the hardest.

    Equal scores on both sides of an edge share their errors evenly, so that the order of the
    samples does not matter.

    Args:
        scores: Larger is harder. Shape (samples,).
        errors: True or 1 where wrong, False or 0 where right. Shape (samples,).
        num_bins: Number of bins, at least 1 and at most the number of samples.

    Raises:
        AuditError: The number of bins is out of range, or some values are NaN.
    """
    scores, errors = _paired(scores, errors)
    if not 1 <= num_bins <= len(scores):
        raise AuditError(
            f"{num_bins} bins of {len(scores)} samples",
            "choose at least 1 and at most one per sample",
            parameter="num_bins",
        )
    _, group = np.unique(scores, return_inverse=True)
    shared = (np.bincount(group, weights=errors) / np.bincount(group))[group]
    bins = np.array_split(np.argsort(scores, kind="stable"), num_bins)
    return ErrorRateByBin(
        counts=np.array([len(members) for members in bins]),
        lowest=np.array([scores[members[0]] for members in bins]),
        highest=np.array([scores[members[-1]] for members in bins]),
        error_rates=np.array([shared[members].mean() for members in bins]),
    )


def _paired(first: ArrayLike, second: ArrayLike) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    left, right = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if left.ndim != 1 or left.shape != right.shape:
        raise AuditError(f"shapes {left.shape} and {right.shape} are not one number per sample")
    missing = int((np.isnan(left) | np.isnan(right)).sum())
    if missing:
        raise AuditError(f"{missing} of {len(left)} samples are NaN", "exclude them first")
    return left, right


def ranks(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Ranks from 1; equal numbers get their mean rank. Shape (samples,)."""
    _, group, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    last = counts.cumsum().astype(np.float64)
    mean_ranks: NDArray[np.float64] = (last - (counts - 1) / 2)[group]
    return mean_ranks
