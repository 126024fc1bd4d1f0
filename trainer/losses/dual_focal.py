"""Dual focal loss, weighted by the lead of the target over the next less probable class."""

import torch
from torch import Tensor
from torch.nn import functional as F


def dual_focal(logits: Tensor, targets: Tensor, *, gamma: float = 5.0) -> Tensor:
    """`-(1 - p_t + p_j) ** gamma * log p_t`, p_j the largest probability strictly below p_t.

    Tao et al. (2023). p_j is zero where the target is least probable, and classes tied with the
    target do not count. The gradient flows through p_j too.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        gamma: Exponent, zero or more; zero gives plain cross-entropy.

    Returns:
        One loss per sample. Shape (samples,).
    """
    loss = F.cross_entropy(logits, targets, reduction="none")
    return _dual_focal_weight(logits, targets, gamma) * loss


def dual_focal_gra(logits: Tensor, targets: Tensor, *, gamma: float = 5.0) -> Tensor:
    """Dual focal loss whose whole weight is a constant to the gradient (arXiv 2503.22725).

    The code published with that paper detaches p_j alone and leaves the gradient of p_t in the
    weight, which is another loss; this one follows the text.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        gamma: Exponent, zero or more; zero gives plain cross-entropy.

    Returns:
        One loss per sample, equal in value to `dual_focal`. Shape (samples,).
    """
    weight = _dual_focal_weight(logits.detach(), targets, gamma)
    return weight * F.cross_entropy(logits, targets, reduction="none")


def _dual_focal_weight(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """`(1 - p_t + p_j) ** gamma`. Shape (samples,)."""
    probabilities = logits.softmax(dim=-1)
    own = probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    # Logits are compared: equal ones can have probabilities that differ in the last digit. Of tied
    # classes below the target only one receives the gradient, as in the published code.
    is_below = logits < logits.gather(-1, targets.unsqueeze(-1))
    below = torch.where(is_below, probabilities, 0.0).topk(1).values.squeeze(-1)
    # A gamma below 1 has an infinite slope at 0, where a p_t that rounds to 1 lies.
    smallest = torch.finfo(logits.dtype).tiny
    return (1 - own + below).clamp_min(smallest) ** gamma
