"""Maximum mean calibration error, plain and weighted, in both normalisations."""

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.mmce import (
    Normalisation,
    mmce,
    mmce_weighted,
    squared_mmce,
    weighted_mmce,
)

ROOT_OFFSET = 1e-10


def squared_weighted_mmce(logits: Tensor, targets: Tensor) -> Tensor:
    return weighted_mmce(logits, targets, normalisation="paper").square() - ROOT_OFFSET


SETS = ["a", "b", "x"]
TERMS = {
    "mmce_m": squared_mmce,
    "mmce_m_sq_formula": squared_mmce,
    "mmce_w_sq_formula": squared_weighted_mmce,
}
LOSSES = [
    partial(loss, normalisation=normalisation)
    for loss in (mmce, mmce_weighted)
    for normalisation in ("paper", "reference")
]


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("key", TERMS)
def test_the_squared_term_matches_the_reference(
    reference_batch: Callable[..., tuple[Tensor, Tensor]],
    check_total: Callable[..., None],
    key: str,
    name: str,
) -> None:
    logits, targets = reference_batch(name)

    check_total(name, key, TERMS[key](logits, targets), logits)


@pytest.mark.parametrize("name", SETS)
def test_the_reference_normalisation_matches_the_reference(
    reference_batch: Callable[..., tuple[Tensor, Tensor]],
    check_total: Callable[..., None],
    name: str,
) -> None:
    logits, targets = reference_batch(name)

    check_total(name, "mmce_w", weighted_mmce(logits, targets, normalisation="reference"), logits)


@pytest.mark.parametrize("name", SETS)
def test_the_default_is_the_pair_of_coefficient_and_normalisation_that_was_published(
    reference_batch: Callable[..., tuple[Tensor, Tensor]],
    check_total: Callable[..., None],
    name: str,
) -> None:
    logits, targets = reference_batch(name)

    check_total(name, "ce_plus_2mmce_w", mmce_weighted(logits, targets).mean(), logits)


@pytest.mark.parametrize("loss", LOSSES)
def test_extreme_logits_stay_finite(
    check_extremes: Callable[..., None], loss: Callable[..., Tensor]
) -> None:
    check_extremes(loss)


@pytest.mark.parametrize(
    ("loss", "term"),
    [
        (partial(mmce, normalisation="reference"), squared_mmce),
        (mmce, lambda *batch: (squared_mmce(*batch) + ROOT_OFFSET).sqrt()),
        *(
            (
                partial(mmce_weighted, normalisation=normalisation),
                partial(weighted_mmce, normalisation=normalisation),
            )
            for normalisation in ("paper", "reference")
        ),
    ],
)
def test_the_mean_is_mean_cross_entropy_plus_coefficient_times_the_term(
    reference_batch: Callable[..., tuple[Tensor, Tensor]],
    loss: Callable[..., Tensor],
    term: Callable[..., Tensor],
) -> None:
    logits, targets = reference_batch("a")

    losses = loss(logits, targets, coefficient=3.0)

    expected = F.cross_entropy(logits, targets) + 3.0 * term(logits, targets)
    torch.testing.assert_close(losses.mean(), expected)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("samples", [1, 2, 3, 64])
@pytest.mark.parametrize("wrong", [0, 1, None])
def test_batches_of_any_size_and_kind_are_finite(
    loss: Callable[..., Tensor], samples: int, wrong: int | None
) -> None:
    logits = torch.eye(3)[torch.zeros(samples, dtype=torch.long)].requires_grad_()
    targets = torch.zeros(samples, dtype=torch.long)
    targets[:wrong] = 1

    losses = loss(logits, targets)

    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert losses.isfinite().all()
    assert gradient.isfinite().all()


@pytest.mark.parametrize("normalisation", ["paper", "reference"])
@pytest.mark.parametrize("target", [0, 1])
def test_the_weighted_term_is_zero_where_all_predictions_are_of_one_kind(
    normalisation: Normalisation, target: int
) -> None:
    logits = torch.tensor([[2.0, 0.0], [1.0, 0.0], [3.0, 0.0]], requires_grad=True)
    targets = torch.full((3,), target)
    plain = F.cross_entropy(logits, targets, reduction="none")

    losses = mmce_weighted(logits, targets, normalisation=normalisation)

    torch.testing.assert_close(losses, plain)
    torch.testing.assert_close(
        torch.autograd.grad(losses.sum(), logits), torch.autograd.grad(plain.sum(), logits)
    )


@pytest.mark.parametrize("loss", [mmce, mmce_weighted])
def test_an_unknown_normalisation_is_refused_by_name(loss: Callable[..., Tensor]) -> None:
    with pytest.raises(ValueError, match="'twice'"):
        loss(torch.zeros(1, 2), torch.zeros(1, dtype=torch.long), normalisation="twice")


@pytest.mark.parametrize("samples", [13, 64, 130])
def test_a_square_that_rounds_below_zero_does_not_break_the_root(samples: int) -> None:
    targets = (torch.arange(samples) >= samples // 3).long()
    for margin in range(40):
        logits = torch.tensor([[1e-5 * margin, 0.0]]).repeat(samples, 1).requires_grad_()

        losses = mmce_weighted(logits, targets)

        (gradient,) = torch.autograd.grad(losses.sum(), logits)
        assert losses.isfinite().all()
        assert gradient.isfinite().all()
