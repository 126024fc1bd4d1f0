"""Focal losses: fixed gamma, scheduled, one gamma per sample, and as a gradient weight."""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.focal import (
    GammaSchedule,
    ScheduledFocal,
    dual_focal,
    dual_focal_gra,
    flsd_53,
    flsd_53_gra,
    flsd_532,
    focal,
    focal_gra,
    gamma_53,
    gamma_532,
    lambert_focal,
    lambert_gamma,
    lower_lambert,
)

DATA = Path(__file__).resolve().parents[2] / "data"
REFERENCES = {
    **{f"focal_g{gamma}_sum": partial(focal, gamma=gamma) for gamma in (0, 1, 2, 3, 5, 0.5)},
    **{f"fl_gra_g{gamma}_sum": partial(focal_gra, gamma=gamma) for gamma in (1, 2, 3)},
    "flsd53_sum": flsd_53,
    "flsd532_sum": flsd_532,
    "flsd53_gra_sum": flsd_53_gra,
}


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    logits = 2 * torch.randn(32, 5, generator=generator, dtype=torch.float64)
    return logits.requires_grad_(), torch.arange(32) % 5


@pytest.mark.parametrize("key", REFERENCES)
def test_values_and_gradients_match_the_reference(
    check_loss: Callable[..., None], key: str
) -> None:
    check_loss(key, REFERENCES[key])


@pytest.mark.parametrize(
    "loss",
    [*REFERENCES.values(), partial(focal_gra, gamma=0.5), lambert_focal, ScheduledFocal()],
)
def test_extreme_logits_stay_finite(
    check_extremes: Callable[..., None], loss: Callable[..., Tensor]
) -> None:
    check_extremes(loss)


@pytest.mark.parametrize("loss", [focal, focal_gra])
def test_gamma_zero_is_plain_cross_entropy(
    batch: tuple[Tensor, Tensor], loss: Callable[..., Tensor]
) -> None:
    logits, targets = batch

    losses = loss(logits, targets, gamma=0.0)

    torch.testing.assert_close(losses, F.cross_entropy(logits, targets, reduction="none"))


@pytest.mark.parametrize(
    ("loss", "gamma"), [(focal, 3.0), (focal_gra, 3.0), (dual_focal, 5.0), (dual_focal_gra, 5.0)]
)
def test_the_gamma_of_a_loss_is_the_published_one_by_default(
    batch: tuple[Tensor, Tensor], loss: Callable[..., Tensor], gamma: float
) -> None:
    assert torch.equal(loss(*batch), loss(*batch, gamma=gamma))


@pytest.mark.parametrize(
    ("loss", "gamma_of"),
    [
        (partial(focal_gra, gamma=3.0), lambda p: torch.full_like(p, 3.0)),
        (flsd_53_gra, gamma_53),
    ],
)
def test_the_gradient_is_that_of_cross_entropy_times_the_focal_weight(
    batch: tuple[Tensor, Tensor], loss: Callable[..., Tensor], gamma_of: Callable[..., Tensor]
) -> None:
    logits, targets = batch
    plain = F.cross_entropy(logits, targets, reduction="none")
    (plain_gradient,) = torch.autograd.grad(plain.sum(), logits)
    own = (-plain).detach().exp()
    weight = (1 - own) ** gamma_of(own)

    (gradient,) = torch.autograd.grad(loss(logits, targets).sum(), logits)

    torch.testing.assert_close(gradient, weight.unsqueeze(-1) * plain_gradient)


def test_a_probability_on_a_threshold_belongs_to_the_stage_above_it() -> None:
    probabilities = torch.tensor([0.1, 0.2, 0.3, 0.5, 0.9], dtype=torch.float64)

    assert gamma_53(probabilities).tolist() == [5, 3, 3, 3, 3]
    assert gamma_532(probabilities).tolist() == [5, 3, 3, 2, 2]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_rounding_moves_no_probability_across_a_threshold(dtype: torch.dtype) -> None:
    exact = torch.tensor([0.2, 0.5], dtype=dtype)
    rounded = [exact * (1 + ulps * torch.finfo(dtype).eps) for ulps in (-4, -1, 0, 1, 4)]

    assert {tuple(gamma_53(each).tolist()) for each in rounded} == {(3, 3)}
    assert {tuple(gamma_532(each).tolist()) for each in rounded} == {(3, 2)}
    assert gamma_532(exact * (1 - 32 * torch.finfo(dtype).eps)).tolist() == [5, 3]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("loss", [flsd_53, flsd_532, flsd_53_gra])
def test_equal_logits_of_five_classes_have_gamma_three(
    loss: Callable[..., Tensor], dtype: torch.dtype
) -> None:
    logits = torch.tensor([0.0, 1.0, -3.0, 7.0], dtype=dtype).unsqueeze(1).expand(-1, 5)
    targets = torch.arange(4)

    losses = loss(logits, targets)

    expected = torch.full((4,), 0.8**3 * math.log(5), dtype=dtype)
    torch.testing.assert_close(losses, expected)


@pytest.mark.parametrize("loss", [flsd_53, flsd_532, flsd_53_gra, lambert_focal])
def test_a_nan_sample_does_not_affect_the_others(
    batch: tuple[Tensor, Tensor], loss: Callable[..., Tensor]
) -> None:
    logits, targets = batch
    broken = logits.detach().clone()
    broken[3] = torch.nan

    losses = loss(broken, targets)

    others = torch.arange(len(targets)) != 3
    torch.testing.assert_close(losses[others], loss(logits, targets)[others].detach())
    assert losses[3].isnan()


def test_the_gamma_of_lambert_matches_the_roots_and_the_reference() -> None:
    table = dict(np.load(DATA / "losses_lambert_gamma.npz"))
    probabilities = torch.tensor(table["p"])

    gamma = lambert_gamma(probabilities, largest_gamma=1e9).numpy()

    has_root = np.isfinite(table["gamma_root"])
    np.testing.assert_allclose(gamma[has_root], table["gamma_root"][has_root], rtol=1e-9)
    # The reference adds 1e-12 before its Lambert function.
    np.testing.assert_allclose(gamma, table["gamma_ref"], rtol=1e-9, atol=1e-10)


def test_the_function_of_lambert_solves_its_equation_up_to_the_branch_point() -> None:
    values = -torch.logspace(-6, 0, 10_001, dtype=torch.float64) / math.e

    lambert = lower_lambert(values)

    assert (lambert <= -1).all()
    torch.testing.assert_close(lambert * lambert.exp(), values, rtol=1e-14, atol=1e-15)


def test_the_gamma_of_lambert_is_clamped_where_the_formula_breaks() -> None:
    probabilities = torch.tensor([0.0, 1e-30, 1e-6, 0.2, 0.25, 0.5, 0.9, 1.0])

    gamma = lambert_gamma(probabilities, largest_gamma=4.9)

    expected = torch.tensor([4.9, 4.9, 4.9, 4.8505545, 3.0702271, 0.0, 0.0, 0.0])
    torch.testing.assert_close(gamma, expected)


def test_the_gamma_of_lambert_is_five_at_most_by_default() -> None:
    logits, targets = torch.tensor([[0.0, 9.0]], dtype=torch.float64), torch.tensor([0])

    assert lambert_gamma(torch.tensor([1e-4])).tolist() == [5]
    assert torch.equal(lambert_focal(logits, targets), focal(logits, targets, gamma=5.0))


@pytest.mark.parametrize(
    ("epoch", "gamma"), [(0, 5), (99, 5), (100, 3), (249, 3), (250, 1), (349, 1)]
)
def test_the_published_schedule_steps_at_epochs_100_and_250(epoch: int, gamma: float) -> None:
    assert GammaSchedule().gamma(epoch, 350) == gamma


@pytest.mark.parametrize(("epoch", "gamma"), [(0, 5), (2, 5), (3, 3), (6, 3), (7, 2), (9, 2)])
def test_a_fractional_schedule_steps_at_its_fractions_of_the_epochs(
    epoch: int, gamma: float
) -> None:
    schedule = GammaSchedule((5.0, 3.0, 2.0), (0.3, 0.7), fractional=True)

    assert schedule.gamma(epoch, 10) == gamma


def test_a_fraction_that_is_a_whole_epoch_is_exact_despite_rounding() -> None:
    schedule = GammaSchedule((5.0, 3.0), (0.07,), fractional=True)

    assert schedule.gamma(7, 100) == 3
    assert schedule.gamma(6, 100) == 5


def test_a_fraction_within_an_epoch_is_reached_with_the_next_epoch() -> None:
    schedule = GammaSchedule((5.0, 3.0), (0.25,), fractional=True)

    assert schedule.gamma(2, 10) == 5
    assert schedule.gamma(3, 10) == 3


def test_a_schedule_may_step_before_the_first_epoch_and_after_the_last() -> None:
    schedule = GammaSchedule((5.0, 3.0, 2.0), (0.0, 1.0), fractional=True)

    assert {schedule.gamma(epoch, 10) for epoch in range(10)} == {3}


@pytest.mark.parametrize(
    ("gammas", "boundaries", "fractional"),
    [((5, 3), (1, 2), False), ((5, 3, 1), (9, 2), False), ((5, 3, 1), (0.3, 70), True)],
)
def test_a_schedule_that_does_not_fit_together_is_refused(
    gammas: tuple[float, ...], boundaries: tuple[float, ...], *, fractional: bool
) -> None:
    with pytest.raises(ValueError, match="boundaries"):
        GammaSchedule(gammas, boundaries, fractional)


def test_scheduled_focal_takes_the_gamma_of_the_announced_epoch(
    batch: tuple[Tensor, Tensor],
) -> None:
    loss = ScheduledFocal(gammas=(5.0, 3.0, 2.0), boundaries=(100, 250))

    loss.before_epoch(250, 350)

    torch.testing.assert_close(loss(*batch), focal(*batch, gamma=2.0))


def test_the_boundaries_of_scheduled_focal_may_be_fractions(batch: tuple[Tensor, Tensor]) -> None:
    loss = ScheduledFocal(gammas=(5.0, 2.0), boundaries=(0.5,), fractional=True)

    loss.before_epoch(4, 10)
    torch.testing.assert_close(loss(*batch), focal(*batch, gamma=5.0))

    loss.before_epoch(5, 10)
    torch.testing.assert_close(loss(*batch), focal(*batch, gamma=2.0))
