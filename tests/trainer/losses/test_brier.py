"""The Brier score and the losses weighted by its generalised form."""

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.brier import brier, bsce, bsce_flsd_53, bsce_flsd_53_gra, bsce_gra
from trainer.losses.focal import flsd_53, flsd_53_gra, focal, focal_gra

ORDERS = [(1, 1), (2, 2), (2, 1), (1, 2), (2, 3), (3, 2), (2, 0.5)]
REFERENCES = {
    "brier_mean": brier,
    "brier_sum": brier,
    **{f"bsce_b{b}_g{g}_sum": partial(bsce, beta=b, gamma=g) for b, g in ORDERS},
    **{f"bsce_gra_b{b}_g{g}_sum": partial(bsce_gra, beta=b, gamma=g) for b, g in ORDERS},
    "bsce_gra_elem_g3_sum": partial(bsce_gra, gamma=3.0, form="sum"),
    "bsce_gra_elem_g1_sum": partial(bsce_gra, gamma=1.0, form="sum"),
    "bsce_adaptive_gra_b1_g3_sum": partial(bsce_flsd_53_gra, beta=1.0),
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
    [
        *REFERENCES.values(),
        partial(bsce, gamma=0.5, form="sum"),
        bsce_flsd_53,
        bsce_flsd_53_gra,
    ],
)
def test_extreme_logits_stay_finite(
    check_extremes: Callable[..., None], loss: Callable[..., Tensor]
) -> None:
    check_extremes(loss)


@pytest.mark.parametrize("loss", [bsce, bsce_gra])
def test_gamma_zero_is_plain_cross_entropy(
    batch: tuple[Tensor, Tensor], loss: Callable[..., Tensor]
) -> None:
    logits, targets = batch

    losses = loss(logits, targets, gamma=0.0, beta=2.0)

    torch.testing.assert_close(losses, F.cross_entropy(logits, targets, reduction="none"))


def test_the_gradient_is_that_of_cross_entropy_times_the_brier_score(
    batch: tuple[Tensor, Tensor],
) -> None:
    logits, targets = batch
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, targets, reduction="sum"), logits)
    score = (logits.detach().softmax(-1) - F.one_hot(targets, 5)).square().sum(-1, keepdim=True)

    (gradient,) = torch.autograd.grad(bsce_gra(logits, targets, gamma=2.0, beta=2.0).sum(), logits)

    torch.testing.assert_close(gradient, score * plain)


@pytest.mark.parametrize("gamma", [0.5, 1.0, 3.0])
@pytest.mark.parametrize(("weighted", "focal_loss"), [(bsce, focal), (bsce_gra, focal_gra)])
def test_with_beta_one_it_is_focal_loss_times_two_to_the_gamma(
    batch: tuple[Tensor, Tensor],
    gamma: float,
    weighted: Callable[..., Tensor],
    focal_loss: Callable[..., Tensor],
) -> None:
    logits, targets = batch
    expected = 2**gamma * focal_loss(logits, targets, gamma=gamma)

    losses = weighted(logits, targets, gamma=gamma, beta=1.0)

    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(
        torch.autograd.grad(losses.sum(), logits), torch.autograd.grad(expected.sum(), logits)
    )


@pytest.mark.parametrize("beta", [1.0, 2.0, 3.0])
@pytest.mark.parametrize(
    ("by_sample", "fixed"), [(bsce_flsd_53, bsce), (bsce_flsd_53_gra, bsce_gra)]
)
def test_with_gammas_of_flsd_53_each_sample_has_the_loss_of_its_own_gamma(
    batch: tuple[Tensor, Tensor],
    beta: float,
    by_sample: Callable[..., Tensor],
    fixed: Callable[..., Tensor],
) -> None:
    logits, targets = batch
    own = logits.detach().softmax(-1)[torch.arange(32), targets]
    hard, easy = (fixed(logits, targets, gamma=gamma, beta=beta) for gamma in (5.0, 3.0))
    expected = torch.where(own < 0.2, hard, easy)

    losses = by_sample(logits, targets, beta=beta)

    assert 0 < int((own < 0.2).sum()) < 32
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(
        torch.autograd.grad(losses.sum(), logits), torch.autograd.grad(expected.sum(), logits)
    )


@pytest.mark.parametrize(
    ("weighted", "focal_loss"), [(bsce_flsd_53, flsd_53), (bsce_flsd_53_gra, flsd_53_gra)]
)
def test_with_beta_one_and_gammas_of_flsd_53_it_is_flsd_53_times_32_or_8(
    batch: tuple[Tensor, Tensor],
    weighted: Callable[..., Tensor],
    focal_loss: Callable[..., Tensor],
) -> None:
    logits, targets = batch
    own = logits.detach().softmax(-1)[torch.arange(32), targets]

    losses = weighted(logits, targets, beta=1.0)

    expected = torch.where(own < 0.2, 32.0, 8.0) * focal_loss(logits, targets)
    torch.testing.assert_close(losses, expected)


def test_both_forms_agree_where_beta_equals_gamma(batch: tuple[Tensor, Tensor]) -> None:
    by_norm = bsce_gra(*batch, gamma=3.0, beta=3.0)

    by_sum = bsce_gra(*batch, gamma=3.0, form="sum")

    torch.testing.assert_close(by_sum, by_norm)


def test_an_unknown_form_is_refused_by_name(batch: tuple[Tensor, Tensor]) -> None:
    form: Any = "mean"

    with pytest.raises(ValueError, match="'mean'"):
        bsce(*batch, form=form)
