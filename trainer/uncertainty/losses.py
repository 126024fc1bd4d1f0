"""The objectives of an uncertainty head: to order samples by their loss, or to predict its value.

The losses of the samples are constants in both; no gradient flows to the classifier.
"""

import torch
from torch import Tensor


def ranking_loss(
    uncertainties: Tensor, losses: Tensor, *, margin: float = 0.1, leeway: float = 0.0
) -> Tensor:
    """Hinge loss of pairs: the sample with the larger loss is to be more uncertain by a margin.

    The pairs are rows 0 and 1, 2 and 3, ... of the batch, as in Kirchhof et al. (2024); the last
    row of an odd batch is paired with the first one. Only the order of the losses matters, so with
    `leeway` 0 any increasing function of them, such as a multiple, gives the same value and
    gradient. The scale of the uncertainties follows from the margin and has no other meaning.

    A pair of equal losses has no order and counts as `margin`, a constant without a gradient; the
    published code pushes its second sample up.

    Args:
        uncertainties: Shape (samples,).
        losses: Loss of each sample. Shape (samples,).
        margin: Difference of uncertainties from which a pair counts as 0.
        leeway: Difference of losses below which they count as equal.

    Returns:
        One loss per pair, none for an empty batch. Shape (half the samples, rounded up,).
    """
    closing = slice(0, len(losses) % 2)  # the first row of an odd batch, or no row
    second_uncertainties = torch.cat([uncertainties[1::2], uncertainties[closing]])
    second_losses = torch.cat([losses[1::2], losses[closing]])
    differences = (losses[::2] - second_losses).detach()
    order = differences.sign() * (differences.abs() >= leeway)
    return (margin - order * (uncertainties[::2] - second_uncertainties)).clamp(min=0)


def squared_loss(uncertainties: Tensor, losses: Tensor) -> Tensor:
    """Squared difference of each uncertainty from the loss, the older form of loss prediction.

    Unlike `ranking_loss` it depends on the scale of the losses, and large losses dominate it.

    Args:
        uncertainties: In nats. Shape (samples,).
        losses: In nats. Shape (samples,).

    Returns:
        One loss per sample, in squared nats. Shape (samples,).
    """
    return (uncertainties - losses.detach()).square()
