"""Numbers that compare scores with what is known about the samples, with 95 % intervals."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata, spearmanr
from sklearn.metrics import average_precision_score

from difficulty_service.analyses.audit.score_comparison import spearman_interval

Scores = NDArray[np.float64]
Flags = NDArray[np.bool_]

RESAMPLES = 1000
"""Drawings of the samples for an interval."""

QUANTILE = 1.959963984540054
"""Half the width of a 95 % interval of a normal distribution, in standard deviations."""


def auroc_with_error(scores: Scores, wrong: Flags) -> tuple[float, float]:
    """AUROC with the half-width of its 95 % interval after DeLong et al. (1988).

    Args:
        scores: Larger for samples that should be wrong. Shape (samples,).
        wrong: Shape (samples,).
    """
    above, below = placements(scores, wrong)
    return float(above.mean()), _half_width(above, below)


def auroc_difference(first: Scores, second: Scores, wrong: Flags) -> tuple[float, float]:
    """AUROC of one score minus that of another of the same samples, with its half-width.

    The interval is that of DeLong et al. (1988) for correlated curves: of two scores that err on
    the same samples, a small difference is a sure one.
    """
    one, other = placements(first, wrong), placements(second, wrong)
    above, below = one[0] - other[0], one[1] - other[1]
    return float(above.mean()), _half_width(above, below)


def placements(scores: Scores, wrong: Flags) -> tuple[Scores, Scores]:
    """The share of the other kind that each sample ranks on the right side of, ties half.

    Returns:
        That of wrong samples, of shape (wrong,), and that of right ones, of shape (right,).
    """
    positive, negative = scores[wrong], scores[~wrong]
    everything = rankdata(scores)
    above = (everything[wrong] - rankdata(positive)) / len(negative)
    below = 1 - (everything[~wrong] - rankdata(negative)) / len(positive)
    return above, below


def _half_width(above: Scores, below: Scores) -> float:
    variance = above.var(ddof=1) / len(above) + below.var(ddof=1) / len(below)
    return float(QUANTILE * np.sqrt(variance))


def detection(scores: Scores, wrong: Flags, flagged: Flags | None) -> dict[str, Any]:
    """How well wrong labels are ranked, and how well a method's own cut finds them."""
    auroc, error = auroc_with_error(scores, wrong)
    found: dict[str, Any] = {
        "auroc": auroc,
        "auroc_error": error,
        "average_precision": float(average_precision_score(wrong, scores)),
        "wrong": int(wrong.sum()),
        "samples": len(wrong),
    }
    if flagged is not None:
        hits = int((flagged & wrong).sum())
        found["flagged"] = int(flagged.sum())
        found["precision"] = hits / max(1, int(flagged.sum()))
        found["recall"] = hits / int(wrong.sum())
    return found


def rank_agreement(scores: Scores, values: Scores) -> dict[str, float]:
    """Spearman's rank correlation with a bootstrap interval."""
    low, high = spearman_interval(scores, values)
    return {"spearman": float(spearmanr(scores, values)[0]), "low": low, "high": high}


def spearman_difference(first: Scores, second: Scores, values: Scores) -> tuple[float, float]:
    """Spearman's correlation of one score minus that of another, and half the 95 % interval.

    The interval is that of resampled samples, the same for both. Resampled ranks stay those of all.

    Args:
        first: Shape (samples,).
        second: Shape (samples,).
        values: What both are correlated with. Shape (samples,).
    """
    generator = np.random.default_rng(0)
    ranks = np.stack([rankdata(each) for each in (first, second, values)])
    found = []
    for _ in range(RESAMPLES):
        drawn = np.corrcoef(ranks[:, generator.integers(0, len(values), len(values))])
        found.append(drawn[0, 2] - drawn[1, 2])
    exact = np.corrcoef(ranks)
    low, high = np.quantile(found, [0.025, 0.975])
    return float(exact[0, 2] - exact[1, 2]), float(high - low) / 2


def entropy_of_counts(counts: NDArray[np.int64]) -> Scores:
    """Entropy of votes in nats. Shape (samples, classes) to (samples,)."""
    shares = counts / counts.sum(axis=1, keepdims=True)
    logarithms = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    entropy: Scores = -(shares * logarithms).sum(axis=1)
    return entropy


def mean_of_ranks(scores: list[Scores]) -> Scores:
    """The mean of the ranks that several scores give each sample. Shape (samples,)."""
    mean: Scores = np.mean([rankdata(each) for each in scores], axis=0)
    return mean
