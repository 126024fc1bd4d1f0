"""Accuracy and two proper scoring rules: NLL and Brier score."""

import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.predictions import centred_blocks, check_predictions, confidence_and_correct


def nll(logits: Tensor, targets: Tensor) -> float:
    """Mean negative log-likelihood of the targets, in nats; smaller is better.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    check_predictions(logits, targets)
    return float(nll_per_sample(logits, targets).mean())


def nll_per_sample(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-likelihood of every target, in nats. Shape (samples,), float64."""
    targets = targets.detach().cpu().long()
    parts = []
    for rows, block in centred_blocks(logits):
        own = block.gather(1, targets[rows, None]).squeeze(1)
        parts.append(block.exp().sum(dim=1).log() - own)
    return torch.cat(parts)


def brier_score(logits: Tensor, targets: Tensor) -> float:
    """Mean over samples of the squared distance between probabilities and one-hot targets.

    The sum over classes is not divided by their number, so the score lies in [0, 2].

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    check_predictions(logits, targets)
    return float(brier_score_per_sample(logits, targets).mean())


def brier_score_per_sample(logits: Tensor, targets: Tensor) -> Tensor:
    """Squared distance of every sample's probabilities to its one-hot target; (samples,)."""
    targets = targets.detach().cpu().long()
    parts = []
    for rows, block in centred_blocks(logits):
        error = block.softmax(dim=1)
        error[torch.arange(len(error)), targets[rows]] -= 1
        parts.append(error.square().sum(dim=1))
    return torch.cat(parts)


def accuracy(logits: Tensor, targets: Tensor) -> float:
    """Fraction of samples whose largest logit is the target's; among equals the first counts.

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, or a target is not
            one of the classes.
    """
    return float(confidence_and_correct(logits, targets)[1].double().mean())


def top_5_accuracy(logits: Tensor, targets: Tensor) -> float:
    """Fraction of samples with the target among the five largest logits."""
    return top_k_accuracy(logits, targets, k=5)


def top_k_accuracy(logits: Tensor, targets: Tensor, k: int) -> float:
    """Fraction of samples with fewer than k classes ranked before the target.

    Equal logits rank in the order of their classes, so `k = 1` is the accuracy.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        k: Number of classes, at least one.

    Raises:
        MetricError: Shapes do not fit together, a row of logits is not finite, k below one, or a
            target is not one of the classes.
    """
    return float(in_top_k(logits, targets, k).double().mean())


def in_top_k(logits: Tensor, targets: Tensor, k: int) -> Tensor:
    """Whether fewer than k classes rank before the target of each sample. Shape (samples,), bool.

    Arguments and errors as in `top_k_accuracy`.
    """
    check_predictions(logits, targets)
    if k < 1:
        raise MetricError(f"top-{k} accuracy is not defined", "give k of at least 1", parameter="k")
    targets = targets.detach().cpu().long()
    classes = torch.arange(logits.shape[1])
    parts = []
    for rows, block in centred_blocks(logits):
        own_class = targets[rows, None]
        own = block.gather(1, own_class)
        before = (block > own) | ((block == own) & (classes < own_class))
        parts.append(before.sum(dim=1) < k)
    return torch.cat(parts)
