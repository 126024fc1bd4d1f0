"""Temperatures for all kinds of logits, compared with exact optima and grids."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.evaluation.temperature_scaling import (
    COLDEST,
    HOTTEST,
    fit_temperature_by_adaptive_ece,
    fit_temperature_by_ece,
    fit_temperature_by_nll,
)
from trainer.metrics.calibration import adaptive_ece, ece
from trainer.metrics.proper_scores import accuracy, nll

DATA = Path(__file__).resolve().parents[2] / "data"
GOLDEN = json.loads((DATA / "metrics.json").read_text())["temperature"]


@pytest.fixture(scope="module")
def batches() -> dict[str, tuple[Tensor, Tensor]]:
    """The sets of the golden values; separable logits are right every time, by a margin."""
    small, wide = np.load(DATA / "losses_a.npz"), np.load(DATA / "losses_b.npz")
    large = np.load(DATA / "metrics.npz")
    logits, targets = torch.tensor(large["h__logits"]), torch.tensor(large["h__targets"])
    few = torch.tensor(small["logits"])
    return {
        "H": (logits, targets),
        "A": (few, torch.tensor(small["targets"])),
        "B": (torch.tensor(wide["logits"]), torch.tensor(wide["targets"])),
        "Hx3": (3 * logits, targets),
        "Hx0.3": (0.3 * logits, targets),
        "Sep": (few, few.argmax(dim=1)),
    }


@pytest.mark.parametrize("name", GOLDEN)
def test_the_temperature_by_nll_is_the_exact_optimum(
    batches: dict[str, tuple[Tensor, Tensor]], name: str
) -> None:
    fitted = fit_temperature_by_nll(*batches[name])

    assert fitted.temperature == pytest.approx(GOLDEN[name]["nll_temperature"], rel=1e-6)
    assert fitted.nll == pytest.approx(GOLDEN[name]["nll"], rel=1e-4, abs=1e-9)
    assert fitted.nll <= GOLDEN[name]["nll"] * (1 + 1e-12)


@pytest.mark.parametrize("name", GOLDEN)
def test_the_temperature_by_ece_is_that_of_the_reference_grid(
    batches: dict[str, tuple[Tensor, Tensor]], name: str
) -> None:
    temperature = fit_temperature_by_ece(*batches[name])

    assert temperature == pytest.approx(GOLDEN[name]["ece_grid_temperature"], rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_gradient_is_zero_at_the_minimum(
    batches: dict[str, tuple[Tensor, Tensor]], dtype: torch.dtype
) -> None:
    logits, targets = batches["H"]
    fitted = fit_temperature_by_nll(logits.to(dtype), targets)

    step = 1e-4
    below, above = (
        nll(logits / (fitted.temperature * math.exp(sign * step)), targets) for sign in (-1, 1)
    )

    assert abs(fitted.gradient) < 1e-10
    assert not fitted.at_bound
    assert (above - below) / (2 * step) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("scale", [1e-2, 0.05, 20.0, 500.0])
def test_scaling_the_logits_scales_the_temperature(
    batches: dict[str, tuple[Tensor, Tensor]], scale: float
) -> None:
    logits, targets = batches["A"]
    expected = scale * fit_temperature_by_nll(logits, targets).temperature

    fitted = fit_temperature_by_nll(scale * logits, targets)

    assert fitted.temperature == pytest.approx(expected, rel=1e-8)


def test_separable_logits_have_the_coldest_temperature(
    batches: dict[str, tuple[Tensor, Tensor]],
) -> None:
    fitted = fit_temperature_by_nll(*batches["Sep"])

    assert fitted.temperature == COLDEST
    assert fitted.at_bound
    assert fitted.gradient >= 0


def test_logits_worse_than_guessing_have_the_hottest_temperature(
    batches: dict[str, tuple[Tensor, Tensor]],
) -> None:
    logits, targets = batches["H"]

    fitted = fit_temperature_by_nll(-logits, targets)

    assert fitted.temperature == HOTTEST
    assert fitted.at_bound


def test_scaling_by_the_fitted_temperature_lowers_the_nll_and_keeps_the_accuracy(
    batches: dict[str, tuple[Tensor, Tensor]],
) -> None:
    logits, targets = batches["H"]

    scaled = logits / fit_temperature_by_nll(logits, targets).temperature

    assert nll(scaled, targets) < nll(logits, targets)
    assert accuracy(scaled, targets) == accuracy(logits, targets)


def test_excluded_classes_do_not_change_the_temperature(
    batches: dict[str, tuple[Tensor, Tensor]],
) -> None:
    logits, targets = batches["A"]
    excluded = torch.full((len(logits), 1), -math.inf, dtype=logits.dtype)
    expected = fit_temperature_by_nll(logits, targets).temperature

    fitted = fit_temperature_by_nll(torch.cat([logits, excluded], dim=1), targets)

    assert fitted.temperature == pytest.approx(expected, rel=1e-9)


def test_the_grid_search_returns_the_smallest_of_equally_good_temperatures() -> None:
    logits = torch.zeros(4, 2)

    assert fit_temperature_by_ece(logits, torch.tensor([0, 1, 0, 1])) == 0.1
    assert fit_temperature_by_ece(logits, torch.tensor([0, 1, 0, 1]), grid=(3.0, 2.0)) == 2.0


def test_the_grid_finds_the_least_ece_of_its_temperatures(
    batches: dict[str, tuple[Tensor, Tensor]],
) -> None:
    logits, targets = batches["B"]
    grid = (0.5, 1.0, 1.5, 2.0)

    temperature = fit_temperature_by_ece(logits, targets, grid, num_bins=10)

    errors = {t: ece(logits / t, targets, num_bins=10) for t in grid}
    assert temperature == min(errors, key=lambda t: errors[t])


@pytest.mark.parametrize("name", ["H", "A", "B", "Hx3", "Hx0.3"])
def test_the_temperature_by_adaptive_ece_has_the_least_adaptive_ece_of_the_grid(
    batches: dict[str, tuple[Tensor, Tensor]], name: str
) -> None:
    logits, targets = batches[name]
    grid = [0.1 * tenths for tenths in range(1, 101)]

    temperature = fit_temperature_by_adaptive_ece(logits, targets)

    errors = [adaptive_ece(logits / t, targets) for t in grid]
    assert temperature == pytest.approx(grid[int(np.argmin(errors))])


@pytest.mark.parametrize("grid", [(), (0.0, 1.0), (-1.0,), (math.inf,), (math.nan,)])
def test_a_grid_that_is_not_above_zero_is_refused(grid: tuple[float, ...]) -> None:
    with pytest.raises(MetricError, match="finite and above 0"):
        fit_temperature_by_ece(torch.zeros(2, 2), torch.tensor([0, 1]), grid)


def test_logits_that_are_not_finite_are_refused() -> None:
    with pytest.raises(MetricError, match="row 1"):
        fit_temperature_by_nll(torch.tensor([[0.0, 1.0], [math.nan, 0.0]]), torch.tensor([0, 1]))
