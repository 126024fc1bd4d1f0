"""A bootstrap interval of a rank correlation."""

import numpy as np
from numpy.typing import NDArray

MOST_RESAMPLES, FEWEST_RESAMPLES = 1000, 200
RESAMPLED_ROWS = 20_000_000
"""Rows drawn in all; beyond 100,000 samples the interval is narrow, and fewer resamples will do."""


def spearman_interval(
    first: NDArray[np.float64], second: NDArray[np.float64], seed: int = 0
) -> tuple[float, float]:
    """The 95 % percentile interval of Spearman's rank correlation over resampled samples.

    A resample is a count for each sample, so that its ranks need no new sort.

    Args:
        first: One score per sample, not all equal. Shape (samples,).
        second: The other score of each sample, not all equal. Shape (samples,).
        seed: Seed of the resamples.
    """
    size = len(first)
    num_resamples = max(FEWEST_RESAMPLES, min(MOST_RESAMPLES, RESAMPLED_ROWS // size))
    rng = np.random.default_rng(seed)
    one, other = (np.unique(scores, return_inverse=True)[1] for scores in (first, second))
    correlations = [
        spearman_of_counts(one, other, np.bincount(rng.integers(size, size=size), minlength=size))
        for _ in range(num_resamples)
    ]
    # In a resample of few samples all scores may be equal.
    low, high = np.nanquantile(correlations, (0.025, 0.975))
    return float(low), float(high)


def spearman_of_counts(
    first: NDArray[np.int64], second: NDArray[np.int64], counts: NDArray[np.int64]
) -> float:
    """Spearman's rank correlation where each sample is repeated.

    Args:
        first: Place of each sample's score among the distinct scores. Shape (samples,).
        second: The same for the other score. Shape (samples,).
        counts: How often each sample occurs. Shape (samples,).

    Returns:
        The correlation with averaged ties; NaN where all scores are equal.
    """
    one, other = _centred_ranks(first, counts), _centred_ranks(second, counts)
    weighted = counts * one
    spread = (weighted @ one) * ((counts * other) @ other)
    return float(weighted @ other / np.sqrt(spread)) if spread > 0 else float("nan")


def _centred_ranks(places: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Mean rank of each sample minus the mean of all ranks. Shape (samples,)."""
    sizes = np.bincount(places, weights=counts)
    ranks: NDArray[np.float64] = (sizes.cumsum() - (sizes - 1) / 2)[places]
    return ranks - (counts.sum() + 1) / 2
