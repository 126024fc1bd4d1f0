"""Weighted means of one number per sample: accuracy, NLL, Brier score, share of sure samples."""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer.metrics.calibration import SURE
from trainer.metrics.predictions import as_array, confidence_and_correct
from trainer.metrics.proper_scores import (
    brier_score_per_sample,
    in_top_k,
    nll_per_sample,
)
from trainer.metrics.weighted.statistic import Counts, Statistic, Values

NAMES = ("accuracy", "top_5_accuracy", "nll", "brier_score", "s99_share", "s99_accuracy")


def weighted_means(logits: Tensor, targets: Tensor) -> Statistic:
    """Prepares the metrics of NAMES; see `weighted_metrics`."""
    confidence, correct = (as_array(each) for each in confidence_and_correct(logits, targets))
    sure = confidence >= SURE
    numbers = {
        "accuracy": correct,
        "top_5_accuracy": as_array(in_top_k(logits, targets, k=5)),
        "nll": as_array(nll_per_sample(logits, targets)),
        "brier_score": as_array(brier_score_per_sample(logits, targets)),
        "s99_share": sure,
        "s99_accuracy": sure & correct,
    }

    def statistic(counts: Counts) -> Values:
        values = {name: weighted_mean(counts, each) for name, each in numbers.items()}
        share = values["s99_share"]
        values["s99_accuracy"] = np.divide(
            values["s99_accuracy"], share, out=np.full(len(counts), np.nan), where=share > 0
        )
        return values

    return statistic


def weighted_mean(counts: Counts, numbers: NDArray[np.generic]) -> NDArray[np.float64]:
    """Weighted mean of one number per sample; NaN where a number is infinite. (resamples,)."""
    values = numbers.astype(np.float64)
    if not np.isfinite(values).all():
        return np.full(len(counts), np.nan)
    means: NDArray[np.float64] = counts @ values / counts.sum(axis=1)
    return means
