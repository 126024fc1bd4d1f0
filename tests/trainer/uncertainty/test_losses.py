"""The ranking and the squared objective: against the published code and loops over pairs."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.uncertainty.training import ranking_loss, squared_loss

MARGIN = 0.1


def naive_ranking_loss(
    uncertainties: Tensor, losses: Tensor, margin: float, leeway: float
) -> list[float]:
    """The definition, pair by pair."""
    rows = list(range(len(losses)))
    if len(rows) % 2:
        rows.append(0)
    values = []
    for first, second in zip(rows[::2], rows[1::2], strict=True):
        difference = float(losses[first] - losses[second])
        sign = 0 if difference == 0 or abs(difference) < leeway else (1 if difference > 0 else -1)
        gap = float(uncertainties[first] - uncertainties[second])
        values.append(max(0.0, margin - sign * gap))
    return values


def random_batch(num_samples: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(num_samples)
    uncertainties = torch.rand(num_samples, generator=generator, dtype=torch.float64) / 5
    losses = torch.rand(num_samples, generator=generator, dtype=torch.float64)
    return uncertainties, (4 * losses).round() / 4  # some are equal


def test_the_ranking_loss_is_that_of_the_published_code_but_for_ties(
    golden: dict[str, Tensor],
) -> None:
    uncertainties = golden["uncertainties"].clone().requires_grad_()
    losses = golden["losses"]
    ties = losses[::2] == losses[1::2]

    values = ranking_loss(uncertainties, losses, margin=MARGIN)

    (gradient,) = torch.autograd.grad(values.mean(), uncertainties)
    gaps = (uncertainties[::2] - uncertainties[1::2]).detach()
    pushed = torch.where(ties, (MARGIN + gaps).clamp(min=0), values.detach())
    assert ties.sum() == 1
    torch.testing.assert_close(pushed.mean(), golden["ranking__value"])
    untied = ~ties.repeat_interleave(2)
    torch.testing.assert_close(gradient[untied], golden["ranking__grad"][untied])
    assert (gradient[~untied] == 0).all()


def test_with_a_leeway_value_and_gradient_are_those_of_the_published_code(
    golden: dict[str, Tensor],
) -> None:
    uncertainties = golden["uncertainties"].clone().requires_grad_()

    value = ranking_loss(uncertainties, golden["losses"], margin=MARGIN, leeway=0.5).mean()

    (gradient,) = torch.autograd.grad(value, uncertainties)
    torch.testing.assert_close(value.detach(), golden["ranking_leeway__value"])
    torch.testing.assert_close(gradient, golden["ranking_leeway__grad"])


def test_ranking_by_the_loss_of_logits_gives_the_value_of_the_published_code(
    golden: dict[str, Tensor],
) -> None:
    uncertainties = golden["uncertainties"].clone().requires_grad_()
    losses = F.cross_entropy(golden["logits"], golden["labels"], reduction="none")

    value = ranking_loss(uncertainties, losses, margin=MARGIN).mean()

    (gradient,) = torch.autograd.grad(value, uncertainties)
    torch.testing.assert_close(value.detach(), golden["ranking_of_logits__value"])
    torch.testing.assert_close(gradient, golden["ranking_of_logits__grad"])


def test_the_squared_loss_is_that_of_the_published_code_without_its_cross_entropy(
    golden: dict[str, Tensor],
) -> None:
    uncertainties = golden["uncertainties"].clone().requires_grad_()
    losses = F.cross_entropy(golden["logits"], golden["labels"], reduction="none")

    value = squared_loss(uncertainties, losses).mean()

    (gradient,) = torch.autograd.grad(value, uncertainties)
    torch.testing.assert_close(value.detach() + losses.mean(), golden["squared__value"])
    torch.testing.assert_close(gradient, golden["squared__grad"])


@pytest.mark.parametrize("leeway", [0.0, 0.25, 0.6])
@pytest.mark.parametrize("num_samples", [0, 1, 2, 5, 64, 101])
def test_batches_of_any_size_give_the_loss_of_a_loop_over_pairs(
    num_samples: int, leeway: float
) -> None:
    uncertainties, losses = random_batch(num_samples)

    values = ranking_loss(uncertainties, losses, margin=MARGIN, leeway=leeway)

    expected = naive_ranking_loss(uncertainties, losses, MARGIN, leeway)
    torch.testing.assert_close(values, torch.tensor(expected, dtype=torch.float64))


def test_the_last_sample_of_an_odd_batch_learns_too() -> None:
    uncertainties = torch.full((3,), 0.5, requires_grad=True)

    ranking_loss(uncertainties, torch.tensor([1.0, 2.0, 3.0])).sum().backward()

    assert uncertainties.grad is not None
    assert uncertainties.grad.tolist() == [2, -1, -1], "by the pairs 0 and 1, 2 and 0"


def test_a_pair_of_equal_losses_has_no_gradient() -> None:
    uncertainties = torch.tensor([0.2, 0.9], requires_grad=True)

    value = ranking_loss(uncertainties, torch.tensor([0.7, 0.7]), margin=MARGIN)
    value.sum().backward()

    assert value.tolist() == pytest.approx([MARGIN])
    assert uncertainties.grad is not None
    assert uncertainties.grad.tolist() == [0, 0]


@pytest.mark.parametrize("factor", [1e-6, 3.0, 1e6])
def test_ranking_does_not_depend_on_the_scale_of_the_losses(factor: float) -> None:
    uncertainties, losses = random_batch(64)
    uncertainties.requires_grad_()

    value, scaled = (
        ranking_loss(uncertainties, targets).mean() for targets in (losses, factor * losses)
    )

    (gradient,) = torch.autograd.grad(value, uncertainties)
    (scaled_gradient,) = torch.autograd.grad(scaled, uncertainties)
    assert torch.equal(value, scaled)
    assert torch.equal(gradient, scaled_gradient)
    assert not torch.equal(
        squared_loss(uncertainties, losses), squared_loss(uncertainties, 3 * losses)
    )


def test_multiplying_uncertainties_and_margin_multiplies_the_loss() -> None:
    uncertainties, losses = random_batch(64)

    values = ranking_loss(uncertainties, losses, margin=MARGIN)

    larger = ranking_loss(8 * uncertainties, losses, margin=8 * MARGIN)
    torch.testing.assert_close(larger, 8 * values)


@pytest.mark.parametrize("objective", [ranking_loss, squared_loss])
def test_no_gradient_reaches_the_losses(objective) -> None:  # noqa: ANN001
    uncertainties, losses = random_batch(8)
    uncertainties.requires_grad_()
    losses.requires_grad_()

    objective(uncertainties, losses).mean().backward()

    assert losses.grad is None
    assert uncertainties.grad is not None
    assert uncertainties.grad.abs().sum() > 0
