"""Cross-entropy and the losses that add one term to it."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.cross_entropy import (
    cross_entropy,
    entropy,
    entropy_regularised,
    label_smoothing,
    logit_l1,
    poly_loss,
)

REFERENCES = {
    "ce_sum": cross_entropy,
    "ce_mean": cross_entropy,
    "ls_torch_0.05": partial(label_smoothing, smoothing=0.05),
    "poly1_e1_mean": partial(poly_loss, epsilon=1.0),
    "poly1_e2_mean": partial(poly_loss, epsilon=2.0),
    "poly1_e-1_mean": partial(poly_loss, epsilon=-1.0),
    "er_a0.1_mean": partial(entropy_regularised, alpha=0.1),
    "er_a0.3_mean": partial(entropy_regularised, alpha=0.3),
    "l1norm_l0.01_mean": partial(logit_l1, coefficient=0.01),
}


@pytest.fixture
def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(8, 5, generator=generator), torch.arange(8) % 5


@pytest.mark.parametrize("key", REFERENCES)
def test_values_and_gradients_match_the_reference(
    check_loss: Callable[..., None], key: str
) -> None:
    check_loss(key, REFERENCES[key])


@pytest.mark.parametrize("key", REFERENCES)
def test_extreme_logits_stay_finite(check_extremes: Callable[..., None], key: str) -> None:
    check_extremes(REFERENCES[key])


def test_the_smoothing_of_mukhoti_is_that_of_torch_times_classes_over_all_others(
    check_loss: Callable[..., None],
) -> None:
    def smoothed(logits: Tensor, targets: Tensor) -> Tensor:
        num_classes = logits.shape[-1]
        return label_smoothing(logits, targets, smoothing=0.05 * num_classes / (num_classes - 1))

    check_loss("ls_mukhoti_0.05", smoothed)


@pytest.mark.parametrize(
    "loss",
    [
        partial(label_smoothing, smoothing=0.0),
        partial(poly_loss, epsilon=0.0),
        partial(logit_l1, coefficient=0.0),
        partial(entropy_regularised, alpha=0.0),
    ],
)
def test_a_strength_of_zero_is_plain_cross_entropy(
    batch: tuple[Tensor, Tensor], loss: Callable[..., Tensor]
) -> None:
    logits, targets = batch

    losses = loss(logits, targets)

    torch.testing.assert_close(losses, F.cross_entropy(logits, targets, reduction="none"))


def test_the_entropy_of_equal_logits_is_the_logarithm_of_the_number_of_classes() -> None:
    logits = torch.full((2, 7), 3.0)

    torch.testing.assert_close(entropy(logits), torch.full((2,), 7.0).log())
