"""Metrics of predictions: calibration, proper scores, selective prediction, OOD detection.

Logits of shape (samples, classes) and targets of shape (samples,) go in, from any device; plain
numbers come out, computed in float64. Fractions, never percent.
"""

from collections.abc import Callable

from torch import Tensor

from trainer.metrics.calibration import adaptive_ece, classwise_ece, ece, l2_ece, mce
from trainer.metrics.proper_scores import accuracy, brier_score, nll, top_5_accuracy
from trainer.metrics.smooth_calibration import smooth_ece

METRICS: dict[str, Callable[[Tensor, Tensor], float]] = {
    "accuracy": accuracy,
    "top_5_accuracy": top_5_accuracy,
    "nll": nll,
    "brier_score": brier_score,
    "ece": ece,
    "adaptive_ece": adaptive_ece,
    "smooth_ece": smooth_ece,
    "classwise_ece": classwise_ece,
    "l2_ece": l2_ece,
    "mce": mce,
}
"""Metrics that are one number and need logits and targets only."""
