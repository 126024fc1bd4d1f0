"""Smooth ECE beside its definition, written out with the images of a reflected Gaussian."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.stats import norm
from torch import Tensor

from trainer.metrics.bootstrap import Resampling, bootstrap_intervals
from trainer.metrics.calibration import ece
from trainer.metrics.smooth_calibration import fixed_point, residuals_on_grid, smooth_ece

POINTS = np.linspace(0, 1, 4001)


def binary_logits(confidence: NDArray[np.float64]) -> Tensor:
    """Logits of two classes, of which the first has these probabilities, above one half."""
    probabilities = torch.from_numpy(confidence)
    return torch.stack([probabilities.log(), (1 - probabilities).log()], dim=1)


def naive_smooth_ece(confidence: NDArray[np.float64], correct: NDArray[np.bool_]) -> float:
    """The width that equals the integral of the absolute smoothed residuals."""

    def excess(width: float) -> float:
        smoothed = np.zeros_like(POINTS)
        for place, residual in zip(confidence, correct - confidence, strict=True):
            for period in range(-4, 5):
                for image in (place, -place):
                    smoothed += residual * norm.pdf(POINTS, image + 2 * period, width)
        return float(np.trapezoid(np.abs(smoothed) / len(confidence), POINTS)) - width

    return float(brentq(excess, 1e-3, 1))


@pytest.mark.slow
@pytest.mark.parametrize("shift", [0.0, 0.1, 0.3])
def test_the_smooth_ece_is_that_of_its_definition(shift: float) -> None:
    generator = np.random.default_rng(round(10 * shift))
    confidence = generator.uniform(0.5, 0.999, 60)
    correct = generator.random(60) < confidence - shift

    value = smooth_ece(binary_logits(confidence), torch.from_numpy(1 - correct))

    assert value == pytest.approx(naive_smooth_ece(confidence, correct), abs=1e-5)


def test_of_many_samples_the_smooth_ece_is_the_gap_of_a_constant_confidence() -> None:
    confidence = np.full(10_000, 0.8)
    correct = np.arange(10_000) % 10 < 7

    value = smooth_ece(binary_logits(confidence), torch.from_numpy(1 - correct))

    assert value == pytest.approx(0.1, abs=1e-4)


def test_a_calibrated_predictor_has_nearly_no_smooth_ece() -> None:
    generator = np.random.default_rng(0)
    confidence = generator.uniform(0.5, 1, 20_000)
    targets = torch.from_numpy(1 - (generator.random(20_000) < confidence))

    assert smooth_ece(binary_logits(confidence), targets) < 0.01


def test_a_small_move_over_the_edge_of_a_bin_hardly_changes_the_smooth_ece() -> None:
    targets = torch.tensor([0, 1] * 50)
    below, above = (binary_logits(np.tile([0.6 + move, 0.6 - 1e-9], 50)) for move in (-1e-9, 1e-9))

    assert smooth_ece(below, targets) == pytest.approx(smooth_ece(above, targets), abs=1e-7)
    assert abs(ece(below, targets) - ece(above, targets)) > 0.1


def test_predictions_that_are_sure_and_all_right_or_all_wrong_have_the_least_and_the_most() -> None:
    logits = torch.tensor([[1000.0, 0.0]] * 20)

    assert smooth_ece(logits, torch.zeros(20, dtype=torch.int64)) == pytest.approx(0, abs=1e-9)
    assert smooth_ece(logits, torch.ones(20, dtype=torch.int64)) == pytest.approx(1, abs=1e-4)


def test_a_sample_that_counts_twice_is_as_good_as_two() -> None:
    confidence, correct = np.array([0.6, 0.75, 0.9]), np.array([True, False, True])
    masses = residuals_on_grid(confidence, correct) @ np.array([[2.0], [1.0], [1.0]]) / 4
    rows = np.array([0, 0, 1, 2])

    doubled = smooth_ece(binary_logits(confidence[rows]), torch.from_numpy(1 - correct[rows]))

    assert fixed_point(masses.T)[0] == pytest.approx(doubled, abs=1e-12)


def test_the_smooth_ece_has_a_bootstrap_interval_around_its_value(
    batch: tuple[Tensor, Tensor],
) -> None:
    interval = bootstrap_intervals(*batch, Resampling(50), ["smooth_ece"])["smooth_ece"]

    assert interval.value == pytest.approx(smooth_ece(*batch), abs=1e-12)
    assert interval.low < interval.high
