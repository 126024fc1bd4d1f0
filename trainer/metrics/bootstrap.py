"""Bootstrap intervals: the uncertainty of a metric due to the choice of test samples."""

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.calibration import NUM_BINS, equal_width_bins
from trainer.metrics.ood import joined_scores, scores_of_both
from trainer.metrics.predictions import as_array, check_predictions
from trainer.metrics.weighted import (
    WEIGHTED_METRICS,
    Counts,
    Statistic,
    Values,
    equal_width_statistic,
    weighted_mean,
    weighted_metrics,
    weighted_ood,
)

NUM_RESAMPLES = 1000

COUNTS_PER_BLOCK = 1 << 17
"""Number of counts per block of resamples, which fit into a core's cache."""

SMALLEST_BLOCK = 8
"""Number of resamples for which the probabilities of all classes are read at once, at least."""


@dataclass(frozen=True)
class Interval:
    """A value and the percentile interval of its bootstrap resamples.

    The ECE is biased upwards in small samples, and more so in a resample, so its interval may lie
    above the value.
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
    logits: Tensor,
    targets: Tensor,
    resampling: Resampling | None = None,
    metrics: Collection[str] = WEIGHTED_METRICS,
) -> dict[str, Interval]:
    """Intervals of metrics, by name; all of them are of the same resamples.

    A resample in which a metric has no value, such as the AUROC without an error, is left out of
    the interval of that metric. A metric that has no value has no interval.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.
        metrics: Names out of WEIGHTED_METRICS.

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, a target is not one
            of the classes, or a metric is unknown.
    """
    _check_names(metrics)
    statistic = weighted_metrics(logits, targets, metrics)
    return _intervals(statistic, (len(targets),), resampling or Resampling())


def paired_difference(
    metric: str,
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    resampling: Resampling | None = None,
) -> Interval:
    """Interval of the difference of a metric between two models, `first` minus `second`.

    Both models are evaluated on each resample, so that what makes the samples easy or hard for
    both cancels. Where the interval excludes 0, the samples suffice to tell the models apart.

    Args:
        metric: A name out of WEIGHTED_METRICS.
        first: Logits (samples, classes) and targets (samples,) of one model.
        second: Those of another model for the same samples, in the same order; the number of
            classes may differ.
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.

    Raises:
        MetricError: The targets differ, the metric is unknown or has no value, or predictions are
            invalid as in `bootstrap_intervals`.
    """
    intervals = paired_differences(first, second, resampling, (metric,))
    if metric not in intervals:
        raise MetricError(f"{metric} has no value for one of the two models", "leave it out")
    return intervals[metric]


def paired_differences(
    first: tuple[Tensor, Tensor],
    second: tuple[Tensor, Tensor],
    resampling: Resampling | None = None,
    metrics: Collection[str] = WEIGHTED_METRICS,
) -> dict[str, Interval]:
    """`paired_difference` of several metrics, without those that have no value."""
    _check_names(metrics)
    for logits, targets in (first, second):
        check_predictions(logits, targets)
    if not np.array_equal(as_array(first[1]), as_array(second[1])):
        raise MetricError(
            f"targets of {len(first[1])} and {len(second[1])} samples differ",
            "give predictions of two models for the same samples, in the same order",
        )
    first_statistic = weighted_metrics(*first, metrics)
    second_statistic = weighted_metrics(*second, metrics)

    def statistic(counts: Counts) -> Values:
        others = second_statistic(counts)
        return {name: value - others[name] for name, value in first_statistic(counts).items()}

    return _intervals(statistic, (len(first[1]),), resampling or Resampling())


def ood_intervals(
    id_logits: Tensor, ood_logits: Tensor, by: str = "msp", resampling: Resampling | None = None
) -> dict[str, Interval]:
    """Intervals of OOD detection, by the names of `ood.OodDetection`.

    ID and OOD samples are drawn apart, so that each resample has as many of both.

    Args:
        id_logits: Logits of ID samples. Shape (samples, classes).
        ood_logits: Logits of OOD samples. Shape (other samples, classes).
        by: A key of `ood.OOD_SCORES`.
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.

    Raises:
        MetricError: `by` is unknown, or logits are invalid.
    """
    return detection_intervals(*scores_of_both(id_logits, ood_logits, by), resampling)


def detection_intervals(
    id_scores: Tensor, ood_scores: Tensor, resampling: Resampling | None = None
) -> dict[str, Interval]:
    """`ood_intervals` by any score, of shapes (samples,) and (other samples,)."""
    statistic = weighted_ood(*joined_scores(id_scores, ood_scores))
    return _intervals(statistic, (len(id_scores), len(ood_scores)), resampling or Resampling())


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
    value = equal_width_bins(confidence, correct, num_bins).mean_gap
    values = as_array(confidence).astype(np.float64)
    statistic = equal_width_statistic(values, as_array(correct), num_bins)
    interval = _intervals(statistic, (len(values),), resampling or Resampling())["ece"]
    return Interval(value, interval.low, interval.high)


def mean_interval(values: Tensor, resampling: Resampling | None = None) -> Interval:
    """Interval of the mean of one number per sample, such as its loss or its correctness.

    Args:
        values: Finite. Shape (samples,).
        resampling: Bootstrap settings; None is 1,000 resamples at 95 %.

    Raises:
        MetricError: There is not one number per sample, there are no samples, or a number is not
            finite.
    """
    numbers = as_array(values).astype(np.float64)
    if numbers.ndim != 1 or not len(numbers) or not np.isfinite(numbers).all():
        raise MetricError(
            f"values of shape {numbers.shape}", "give one finite value per sample, and at least one"
        )

    def statistic(counts: Counts) -> Values:
        return {"mean": weighted_mean(counts, numbers)}

    return _intervals(statistic, (len(numbers),), resampling or Resampling())["mean"]


def _intervals(
    statistic: Statistic, sizes: tuple[int, ...], resampling: Resampling
) -> dict[str, Interval]:
    """Percentile intervals of the metrics that have a value, of samples in parts of these sizes."""
    values = statistic(np.ones((1, sum(sizes))))
    blocks = [statistic(counts) for counts in _resamples_of_parts(sizes, resampling)]
    outside = (1 - resampling.level) / 2
    intervals = {}
    for name, (value,) in values.items():
        resampled = np.concatenate([block[name] for block in blocks])
        defined = resampled[np.isfinite(resampled)]
        if np.isfinite(value) and len(defined):
            low, high = np.quantile(defined, [outside, 1 - outside])
            intervals[name] = Interval(float(value), float(low), float(high))
    return intervals


def resamples(num_samples: int, resampling: Resampling) -> Iterator[Counts]:
    """Yields how often each sample was drawn. Shape (resamples of a block, samples)."""
    yield from _resamples_of_parts((num_samples,), resampling)


def _resamples_of_parts(sizes: tuple[int, ...], resampling: Resampling) -> Iterator[Counts]:
    """Yields how often each sample of each part was drawn. Shape (resamples, samples)."""
    generator = np.random.default_rng(resampling.seed)
    per_block = max(SMALLEST_BLOCK, COUNTS_PER_BLOCK // sum(sizes))
    for start in range(0, resampling.num_resamples, per_block):
        rows = range(start, min(start + per_block, resampling.num_resamples))
        counts: NDArray[np.float64] = np.empty((len(rows), sum(sizes)))
        for row in counts:
            drawn = [
                np.bincount(generator.integers(size, size=size), minlength=size) for size in sizes
            ]
            row[:] = np.concatenate(drawn)
        yield counts


def _check_names(metrics: Collection[str]) -> None:
    if unknown := sorted(set(metrics) - set(WEIGHTED_METRICS)):
        raise MetricError(
            f"metrics {', '.join(unknown)} are unknown",
            f"give some of {', '.join(WEIGHTED_METRICS)}",
        )
