"""Bootstrap intervals: the uncertainty of a metric due to the choice of test samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import MetricError
from trainer.metrics.calibration import NUM_BINS, bin_of, equal_width_bins
from trainer.metrics.predictions import as_array, confidence_and_correct
from trainer.metrics.proper_scores import brier_score_per_sample, nll_per_sample

NUM_RESAMPLES = 1000


@dataclass(frozen=True)
class Interval:
    """A value and the percentile interval of its bootstrap resamples.

    The ECE is biased upwards in small samples, and more so in a resample, so its interval may lie
    above the value.

    Attributes:
        value: Metric of the samples.
        low: Lower end of the interval.
        high: Upper end of the interval.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap.

    Attributes:
        num_resamples: Number of resamples, at least one; each is drawn with replacement and has
            the size of the sample.
        level: Fraction of the resamples inside the interval, in (0, 1).
        seed: Seed of the resamples.
    """

    num_resamples: int = NUM_RESAMPLES
    level: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        """Validates the settings."""
        if self.num_resamples < 1 or not 0 < self.level < 1:
            raise MetricError(
                f"{self.num_resamples} resamples at level {self.level}",
                "give at least 1 resample and a level between 0 and 1, such as 0.95",
            )


def bootstrap_intervals(
    logits: Tensor, targets: Tensor, resampling: Resampling | None = None
) -> dict[str, Interval]:
    """Intervals of accuracy, NLL, Brier score and ECE, by name.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    confidence, correct = confidence_and_correct(logits, targets)
    return {
        "accuracy": mean_interval(correct, resampling),
        "nll": mean_interval(nll_per_sample(logits, targets), resampling),
        "brier_score": mean_interval(brier_score_per_sample(logits, targets), resampling),
        "ece": ece_interval(confidence, correct, resampling=resampling),
    }


def ece_interval(
    confidence: Tensor,
    correct: Tensor,
    num_bins: int = NUM_BINS,
    resampling: Resampling | None = None,
) -> Interval:
    """Interval of the ECE over bins (l, u] of equal width.

    Args:
        confidence: In [0, 1]. Shape (samples,).
        correct: Whether each prediction is correct. Shape (samples,).
        num_bins: Number of bins, at least one.
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.

    Raises:
        MetricError: There are no samples or no bins, shapes differ, or a confidence is outside
            [0, 1].
    """
    bins = equal_width_bins(confidence, correct, num_bins)
    values = as_array(confidence).astype(np.float64)
    numbers = bin_of(values, num_bins)
    order = np.argsort(numbers, kind="stable")
    gaps = (values - as_array(correct))[order]
    # With the samples sorted by bin, each bin is a contiguous range.
    starts = np.flatnonzero(np.diff(numbers[order], prepend=-1))

    def statistic(counts: NDArray[np.int64]) -> float:
        return float(np.abs(np.add.reduceat(counts * gaps, starts)).sum() / len(gaps))

    return _interval(bins.mean_gap, statistic, len(gaps), resampling or Resampling())


def mean_interval(values: Tensor, resampling: Resampling | None = None) -> Interval:
    """Interval of the mean of one number per sample, such as its loss or its correctness.

    Args:
        values: Shape (samples,).
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.

    Raises:
        MetricError: There is not one number per sample, or there are no samples.
    """
    numbers = as_array(values).astype(np.float64)
    if numbers.ndim != 1 or not len(numbers):
        raise MetricError(
            f"values of shape {numbers.shape}", "give one value per sample, and at least one"
        )

    def statistic(counts: NDArray[np.int64]) -> float:
        return float(counts @ numbers / len(numbers))

    return _interval(float(numbers.mean()), statistic, len(numbers), resampling or Resampling())


def _interval(
    value: float,
    statistic: Callable[[NDArray[np.int64]], float],
    num_samples: int,
    resampling: Resampling,
) -> Interval:
    """Percentile interval of a statistic of the number of times each sample was drawn."""
    generator = np.random.default_rng(resampling.seed)
    values = np.empty(resampling.num_resamples)
    # One resample at a time fits into the cache, which is faster than one array of all.
    for number in range(resampling.num_resamples):
        drawn = generator.integers(num_samples, size=num_samples)
        values[number] = statistic(np.bincount(drawn, minlength=num_samples))
    outside = (1 - resampling.level) / 2
    low, high = np.quantile(values, [outside, 1 - outside])
    return Interval(value=value, low=float(low), high=float(high))
