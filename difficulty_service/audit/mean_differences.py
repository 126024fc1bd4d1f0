"""Differences of means between two groups of samples: tests, corrections and intervals."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtr

Numbers = NDArray[np.float64]

RESAMPLES = 1000


@dataclass(frozen=True)
class MeanDifferences:
    """Tests of the means of two groups, one for each column.

    Attributes:
        differences: Mean of the first group minus mean of the second. Shape (columns,).
        effects: Differences in pooled standard deviations. Shape (columns,).
        p_values: Two-sided, of the hypothesis of equal means. Shape (columns,).
    """

    differences: Numbers
    effects: Numbers
    p_values: Numbers


def compare_means(first: Numbers, second: Numbers, second_means: int = 1) -> MeanDifferences:
    """Compares the means of two groups by Student's and by Welch's test.

    The p-value is the larger one of the two. Far in the tail, where corrected tests decide, Welch's
    test finds too much in a small group beside a large one, and Student's test takes a small group
    that varies more than the other for one with another mean.

    Args:
        first: Shape (first samples, columns), at least two samples.
        second: Shape (second samples, columns), more samples than means.
        second_means: Number of means that were already subtracted from parts of the second group;
            its variance has as many degrees of freedom less.

    Returns:
        Effect 0 and p-value 1 for a column that varies in neither group, such as that of copies of
        two images.
    """
    sizes = len(first), len(second)
    freedoms = sizes[0] - 1, sizes[1] - second_means
    squares = first.var(axis=0) * sizes[0], second.var(axis=0) * sizes[1]
    shares = squares[0] / freedoms[0] / sizes[0], squares[1] / freedoms[1] / sizes[1]
    differences = first.mean(axis=0) - second.mean(axis=0)
    pooled = np.sqrt((squares[0] + squares[1]) / sum(freedoms))
    welch_error = np.sqrt(shares[0] + shares[1])
    student_error = pooled * np.sqrt(1 / sizes[0] + 1 / sizes[1])
    with np.errstate(divide="ignore", invalid="ignore"):
        degrees = welch_error**4 / (shares[0] ** 2 / freedoms[0] + shares[1] ** 2 / freedoms[1])
        p_values = 2 * np.maximum(
            stdtr(degrees, -np.abs(differences) / welch_error),
            stdtr(sum(freedoms), -np.abs(differences) / student_error),
        )
        effects = differences / pooled
    varies = pooled > 0
    return MeanDifferences(
        differences, np.where(varies, effects, 0.0), np.where(varies, p_values, 1.0)
    )


def holm(p_values: Numbers) -> Numbers:
    """Adjusts p-values for their number by Holm's step-down procedure.

    Where all hypotheses are true, the smallest adjusted p-value is below 0.05 with a probability of
    at most 5 %, however the tests depend on each other (Holm 1979).

    Args:
        p_values: Of all tests. Shape (tests,).

    Returns:
        In the same order, at most 1. Shape (tests,).
    """
    order = np.argsort(p_values, kind="stable")
    steps = p_values[order] * np.arange(len(p_values), 0, -1)
    adjusted = np.empty_like(p_values)
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1)
    return adjusted


def bootstrap_intervals(first: Numbers, second: Numbers, seed: int = 0) -> tuple[Numbers, Numbers]:
    """95 % percentile intervals of differences of means, over samples drawn again in each group.

    Args:
        first: Shape (first samples, columns).
        second: Shape (second samples, columns).
        seed: Seed of the resamples.

    Returns:
        Lower and upper ends. Shape (columns,) each.
    """
    rng = np.random.default_rng(seed)
    differences = [
        _resampled_mean(first, rng) - _resampled_mean(second, rng) for _ in range(RESAMPLES)
    ]
    low, high = np.quantile(differences, (0.025, 0.975), axis=0)
    return low, high


def _resampled_mean(rows: Numbers, rng: np.random.Generator) -> Numbers:
    counts = np.bincount(rng.integers(len(rows), size=len(rows)), minlength=len(rows))
    mean: Numbers = counts @ rows / len(rows)
    return mean
