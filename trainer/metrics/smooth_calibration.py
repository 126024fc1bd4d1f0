"""Smooth ECE: calibration error without bins (Błasiok and Nakkiran, ICLR 2024).

Residuals, correctness minus confidence, are smoothed over the confidences by a Gaussian that is
reflected at 0 and 1; the mean absolute value of what results is the error at that width. A wider
Gaussian never makes it larger, so there is one width that equals its own error: the smooth ECE. It
has nothing to choose, and a small change of the confidences changes it little.

Residuals lie on a grid here, split between the nearest two nodes. Reflected smoothing multiplies
the coefficients of the cosine transform, so that each width takes one transform. The package
`relplot` of the authors searches the width in steps of 0.001.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.fft import dct
from scipy.sparse import csr_array
from torch import Tensor

from trainer.metrics.predictions import as_array, confidence_and_correct

INTERVALS = 1024
"""Number of intervals of the grid on [0, 1]."""

HALVINGS = 14
"""Number of times that the interval of the width is halved, before it is interpolated."""


def smooth_ece(logits: Tensor, targets: Tensor) -> float:
    """Smooth calibration error of the largest probability; a fraction in [0, 1].

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    confidence, correct = confidence_and_correct(logits, targets)
    residuals = residuals_on_grid(as_array(confidence), as_array(correct))
    masses = residuals @ np.ones((len(targets), 1)) / len(targets)
    return float(fixed_point(masses.T)[0])


def residuals_on_grid(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> csr_array:
    """Matrix that adds up residuals at the nodes of the grid. Shape (nodes, samples).

    Args:
        confidence: In [0, 1]. Shape (samples,).
        correct: Whether each prediction is correct. Shape (samples,).
    """
    places = confidence * INTERVALS
    lower = np.minimum(places.astype(np.intp), INTERVALS - 1)
    upper_share = places - lower
    residuals = correct - confidence
    samples = np.arange(len(confidence))
    values = np.r_[residuals * (1 - upper_share), residuals * upper_share]
    cells = np.r_[lower, lower + 1], np.r_[samples, samples]
    return csr_array((values, cells), shape=(INTERVALS + 1, len(confidence)))


def fixed_point(masses: NDArray[np.float64]) -> NDArray[np.float64]:
    """The width that equals the smoothed error at that width.

    Args:
        masses: Sums of residuals at the nodes, divided by the number of samples. Shape (resamples,
            nodes).

    Returns:
        Shape (resamples,).
    """
    halved = masses.copy()
    halved[:, 1:-1] /= 2
    coefficients = dct(halved, type=1, axis=1)
    coefficients[:, -1] *= 2

    def excess(width: NDArray[np.float64]) -> NDArray[np.float64]:
        """The error at a width minus the width, which falls with it."""
        frequencies = np.pi * np.arange(INTERVALS + 1) * width[:, None]
        smoothed = np.abs(dct(coefficients * np.exp(-(frequencies**2) / 2), type=1, axis=1))
        ends = (smoothed[:, 0] + smoothed[:, -1]) / 2
        error: NDArray[np.float64] = (smoothed[:, 1:-1].sum(axis=1) + ends) / INTERVALS
        return error - width

    low, high = np.zeros(len(masses)), np.ones(len(masses))
    below, above = excess(low), excess(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        found = excess(middle)
        is_low = found >= 0
        low, below = np.where(is_low, middle, low), np.where(is_low, found, below)
        high, above = np.where(is_low, high, middle), np.where(is_low, above, found)
    drop = below - above
    share = np.divide(below, drop, out=np.zeros_like(drop), where=drop > 0)
    width: NDArray[np.float64] = low + share * (high - low)
    return width
