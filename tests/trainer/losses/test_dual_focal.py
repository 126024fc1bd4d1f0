"""Dual focal loss and its form as a gradient weight."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.focal import dual_focal, dual_focal_gra

REFERENCES = {
    **{f"dfl_g{gamma}_sum": partial(dual_focal, gamma=gamma) for gamma in (1, 2, 5, 0.5)},
    **{f"dfl_gra_paper_g{gamma}_sum": partial(dual_focal_gra, gamma=gamma) for gamma in (1, 2, 5)},
}


@pytest.mark.parametrize("key", REFERENCES)
def test_values_and_gradients_match_the_reference(
    check_loss: Callable[..., None], key: str
) -> None:
    check_loss(key, REFERENCES[key])


@pytest.mark.parametrize("loss", [*REFERENCES.values(), partial(dual_focal_gra, gamma=0.5)])
def test_extreme_logits_stay_finite(
    check_extremes: Callable[..., None], loss: Callable[..., Tensor]
) -> None:
    check_extremes(loss)


@pytest.mark.parametrize("loss", [dual_focal, dual_focal_gra])
def test_gamma_zero_is_plain_cross_entropy(loss: Callable[..., Tensor]) -> None:
    logits, targets = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([0])

    losses = loss(logits, targets, gamma=0.0)

    torch.testing.assert_close(losses, F.cross_entropy(logits, targets, reduction="none"))


def test_a_class_tied_with_the_target_is_not_below_it() -> None:
    probabilities = torch.tensor([[0.4, 0.4, 0.2]])

    loss = dual_focal(probabilities.log(), torch.tensor([0]), gamma=1.0)

    torch.testing.assert_close(loss, -(1 - 0.4 + 0.2) * torch.tensor([0.4]).log())


def test_the_gradient_is_that_of_cross_entropy_times_the_dual_weight() -> None:
    probabilities = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.3, 0.6]], dtype=torch.float64)
    logits, targets = probabilities.log().requires_grad_(), torch.tensor([1, 0])
    (plain,) = torch.autograd.grad(F.cross_entropy(logits, targets, reduction="sum"), logits)
    weight: Tensor = torch.tensor([[1 - 0.3 + 0.2], [1 - 0.1]], dtype=torch.float64) ** 2

    (gradient,) = torch.autograd.grad(dual_focal_gra(logits, targets, gamma=2.0).sum(), logits)

    torch.testing.assert_close(gradient, weight * plain)
