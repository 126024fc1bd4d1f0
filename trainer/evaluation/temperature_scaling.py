"""Temperature scaling: one temperature for all logits, fitted on held-out samples."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.calibration import (
    NUM_BINS,
    ReliabilityBins,
    equal_mass_bins,
    equal_width_bins,
)
from trainer.metrics.predictions import (
    centred_blocks,
    check_predictions,
    confidence_and_correct,
)
from trainer.metrics.proper_scores import nll

COLDEST, HOTTEST = 1e-3, 1e3

ECE_GRID = tuple(tenths / 10 for tenths in range(1, 101))
"""0.1, 0.2, ... 10, the temperatures of the focal-loss papers."""

GRADIENT_TOLERANCE = 1e-6
"""Largest derivative of the NLL by the logarithm of the temperature, relative to 1 + NLL."""


@dataclass(frozen=True)
class FittedTemperature:
    """The temperature of least NLL.

    Attributes:
        temperature: Divisor of the logits, above 0.
        nll: Mean NLL at that temperature, in nats.
        gradient: Derivative of the NLL by the logarithm of the temperature; 0 at a minimum.
        at_bound: Whether the NLL falls all the way to COLDEST or HOTTEST, without a minimum in
            between, for example where every sample is correct by a margin.
    """

    temperature: float
    nll: float
    gradient: float
    at_bound: bool


def fit_temperature_by_nll(logits: Tensor, targets: Tensor) -> FittedTemperature:
    """Fits the temperature between 0.001 and 1,000 with the smallest NLL.

    The NLL is convex in 1 / temperature, so its derivative changes sign at most once. Finding that
    root on a logarithmic scale can neither miss the minimum nor leave the positive numbers, unlike
    gradient descent on the temperature for under-confident or separable logits.
    """
    check_predictions(logits, targets)
    targets = targets.detach().cpu().long()

    def gradient(log_temperature: float) -> float:
        return _nll_gradient(logits, targets, float(np.exp(log_temperature)))

    coldest, hottest = float(np.log(COLDEST)), float(np.log(HOTTEST))
    if gradient(coldest) >= 0:
        return _fitted(logits, targets, COLDEST, at_bound=True)
    if gradient(hottest) <= 0:
        return _fitted(logits, targets, HOTTEST, at_bound=True)
    temperature = float(np.exp(brentq(gradient, coldest, hottest, xtol=1e-12, rtol=1e-12)))
    fitted = _fitted(logits, targets, temperature, at_bound=False)
    if abs(fitted.gradient) > GRADIENT_TOLERANCE * (1 + fitted.nll):
        raise MetricError(
            f"the NLL still changes by {fitted.gradient:g} per unit of log temperature at "
            f"{temperature:g}, as the logits are too large for float64",
            "check whether training diverged",
        )
    return fitted


def fit_temperature_by_ece(
    logits: Tensor,
    targets: Tensor,
    grid: tuple[float, ...] = ECE_GRID,
    num_bins: int = NUM_BINS,
) -> float:
    """Finds the temperature of a grid with the smallest ECE; among equals the smallest temperature.

    The logits are those of samples that the model was not trained on.
    """
    return _least_error(logits, targets, grid, num_bins, equal_width_bins)


def fit_temperature_by_adaptive_ece(
    logits: Tensor,
    targets: Tensor,
    grid: tuple[float, ...] = ECE_GRID,
    num_bins: int = NUM_BINS,
) -> float:
    """Finds the temperature of a grid with the smallest adaptive ECE, over bins of equal mass.

    Arguments and errors as in `fit_temperature_by_ece`.
    """
    return _least_error(logits, targets, grid, num_bins, equal_mass_bins)


def _least_error(
    logits: Tensor,
    targets: Tensor,
    grid: tuple[float, ...],
    num_bins: int,
    bins: Callable[[Tensor, Tensor, int], ReliabilityBins],
) -> float:
    temperatures = np.sort(np.asarray(grid, dtype=np.float64))
    if not len(temperatures) or not temperatures[0] > 0 or not np.isfinite(temperatures[-1]):
        raise MetricError(
            f"temperatures {list(grid)[:5]} must be finite and above 0, and at least one",
            parameter="grid",
        )
    _, correct = confidence_and_correct(logits, targets)
    errors = [
        bins(confidence, correct, num_bins).mean_gap
        for confidence in _confidence_at(logits, temperatures)
    ]
    return float(temperatures[int(np.argmin(errors))])


def _confidence_at(logits: Tensor, temperatures: NDArray[np.float64]) -> Tensor:
    """Largest probability at every temperature. Shape (temperatures, samples)."""
    confidence = torch.empty(len(temperatures), len(logits), dtype=torch.float64)
    for rows, block in centred_blocks(logits):
        for number, temperature in enumerate(temperatures):
            confidence[number, rows] = 1 / (block / temperature).exp().sum(dim=1)
    return confidence


def _fitted(
    logits: Tensor, targets: Tensor, temperature: float, *, at_bound: bool
) -> FittedTemperature:
    return FittedTemperature(
        temperature=temperature,
        nll=nll(logits.double() / temperature, targets),
        gradient=_nll_gradient(logits, targets, temperature),
        at_bound=at_bound,
    )


def _nll_gradient(logits: Tensor, targets: Tensor, temperature: float) -> float:
    """Derivative of the mean NLL by log temperature: (own − expected logit) / temperature."""
    total = 0.0
    for rows, block in centred_blocks(logits):
        scaled = block / temperature
        # A logit of minus infinity has probability 0, and 0 x infinity would be NaN.
        finite = scaled.clamp_min(-1e300)
        expected = (scaled.softmax(dim=1) * finite).sum(dim=1)
        own = finite.gather(1, targets[rows, None]).squeeze(1)
        total += float((own - expected).sum())
    return total / len(logits)
