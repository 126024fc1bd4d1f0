"""Maximum mean calibration error (MMCE): calibration of a batch as a differentiable kernel term.

The term is one number per batch. It is added to the cross-entropy of every sample, so that the mean
over the batch is the published `mean cross-entropy + coefficient * MMCE`, and the sum is the batch
size times that, as in the published training loops.
"""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.constants import require_at_least
from trainer.losses.targets import require_indices

Normalisation = Literal["paper", "reference"]

KERNEL_WIDTH = 0.4
# Keeps the slope of the square root finite; the term is therefore at least 1e-5.
_ROOT_OFFSET = 1e-10
# As in the reference code: keeps its second division finite.
_COUNT_OFFSET = 1e-5


def mmce(
    logits: Tensor,
    targets: Tensor,
    *,
    coefficient: float = 2.0,
    normalisation: Normalisation = "paper",
) -> Tensor:
    """Cross-entropy plus `coefficient` times the MMCE of the batch. Kumar et al. (2018).

    `MMCE**2 = mean_ij (c_i - r_i) (c_j - r_j) exp(-|r_i - r_j| / 0.4)` with confidence r and
    c = 1 for a correct prediction, 0 for a wrong one.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        coefficient: Strength. The default is a choice of ours, as published scripts train with
            `mmce_weighted`.
        normalisation: "paper" takes the square root; "reference" leaves the square, as the code
            of Mukhoti et al. does.

    Returns:
        One loss per sample; the term is the same for the whole batch. Shape (samples,).

    Raises:
        ValueError: The normalisation has another name.
    """
    _check(normalisation)
    require_at_least(0, coefficient=coefficient)
    squared = squared_mmce(logits, targets)
    term = squared if normalisation == "reference" else _root(squared)
    return F.cross_entropy(logits, targets, reduction="none") + coefficient * term


def mmce_weighted(
    logits: Tensor,
    targets: Tensor,
    *,
    coefficient: float = 2.0,
    normalisation: Normalisation = "reference",
) -> Tensor:
    """Cross-entropy plus `coefficient` times the weighted MMCE.

    Kumar et al. (2018). Sums over pairs of correct, of wrong and of mixed samples are divided by
    their numbers of pairs ("paper"). Their code and that of Mukhoti et al. (2020) divide twice
    ("reference"), so that the term fades with the batch size and with the accuracy: 22 times too
    small in a batch of 64 samples, 276 times in one of 512. Published coefficients (2 by Mukhoti
    et al., 4 and 10 by Kumar et al.) are for that form, and so is the default.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        coefficient: Strength; choose it anew for "paper".
        normalisation: "paper" or "reference", see above.

    Returns:
        One loss per sample; the term is the same for the whole batch, and zero where all its
        predictions are correct or all are wrong. Shape (samples,).

    Raises:
        ValueError: The normalisation has another name.
    """
    require_at_least(0, coefficient=coefficient)
    term = weighted_mmce(logits, targets, normalisation=normalisation)
    return F.cross_entropy(logits, targets, reduction="none") + coefficient * term


def squared_mmce(logits: Tensor, targets: Tensor) -> Tensor:
    """The square of the MMCE of a batch, see `mmce`: a scalar, zero or more up to rounding."""
    confidence, correct = _confidence(logits, targets)
    error = correct - confidence
    return error @ _kernel(confidence) @ error / len(error) ** 2


def weighted_mmce(logits: Tensor, targets: Tensor, *, normalisation: Normalisation) -> Tensor:
    """The weighted MMCE of a batch, see `mmce_weighted`; 0 where all are correct or all wrong."""
    _check(normalisation)
    confidence, correct = _confidence(logits, targets)
    squared = _squared_weighted(confidence, correct, normalisation)
    both_kinds = (correct.amax() > correct.amin()).to(squared)
    return both_kinds * _root(squared)


def _squared_weighted(confidence: Tensor, correct: Tensor, normalisation: Normalisation) -> Tensor:
    kernel = _kernel(confidence)
    count, wrong_count = correct.sum(), (1 - correct).sum()
    right = (1 - confidence) * correct / count.clamp_min(1)
    wrong = confidence * (1 - correct) / wrong_count.clamp_min(1)
    among_right, among_wrong = right @ kernel @ right, wrong @ kernel @ wrong
    between = right @ kernel @ wrong
    if normalisation == "paper":
        return among_right + among_wrong - 2 * between
    return (
        among_right / (count**2 + _COUNT_OFFSET)
        + among_wrong / (wrong_count**2 + _COUNT_OFFSET)
        - 2 * between / (count * wrong_count + _COUNT_OFFSET)
    )


def _confidence(logits: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Largest probability and, in its dtype, whether the prediction is right."""
    require_indices(
        logits,
        targets,
        "MMCE",
        "it compares confidence with whether the label was predicted, in pairs of samples",
    )
    confidence, predictions = logits.softmax(dim=-1).max(dim=-1)
    return confidence, (predictions == targets).to(confidence)


def _kernel(confidence: Tensor) -> Tensor:
    """Laplacian kernel between all pairs. Shape (samples, samples)."""
    distances = (confidence.unsqueeze(0) - confidence.unsqueeze(1)).abs()
    return torch.exp(-distances / KERNEL_WIDTH)


def _root(squared: Tensor) -> Tensor:
    """Square root of a value that may be below zero by rounding."""
    return (squared.clamp_min(0) + _ROOT_OFFSET).sqrt()


def _check(normalisation: str) -> None:
    if normalisation not in ("paper", "reference"):
        raise ValueError(
            f"no normalisation {normalisation!r} of MMCE; choose 'paper' or 'reference'"
        )
