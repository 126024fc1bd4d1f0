"""Targets of a loss: class indices, or for each sample a distribution over the classes.

A distribution comes from several people who labelled a sample, or from samples that were mixed. It
takes the place of the one-hot label in the formula of a loss: a sum over the classes of its shares
times the loss of each class, as focal loss is written by Mukhoti et al. (2020), or the distance of
the probabilities to it, as in the Brier score. A one-hot distribution gives the loss of its label.
"""

from torch import Tensor
from torch.nn import functional as F

DISTRIBUTION_DIMENSIONS = 2


def are_distributions(logits: Tensor, targets: Tensor) -> bool:
    """Whether targets are distributions rather than class indices.

    Raises:
        ValueError: They are neither class indices, whole numbers of shape (samples,), nor
            distributions, floating point numbers of the shape of the logits.
    """
    if not targets.is_floating_point() and targets.shape == logits.shape[:1]:
        return False
    if targets.is_floating_point() and targets.shape == logits.shape:
        return True
    kind = "floating point" if targets.is_floating_point() else "whole"
    raise ValueError(
        f"targets are {kind} numbers of shape {tuple(targets.shape)} for logits of shape "
        f"{tuple(logits.shape)}; give class indices, whole numbers of shape (samples,), or "
        "distributions, floating point numbers of the shape of the logits"
    )


def require_indices(logits: Tensor, targets: Tensor, loss: str, reason: str) -> None:
    """Refuses distributions where a loss has no meaning for them.

    Raises:
        ValueError: The targets are distributions, or no targets at all.
    """
    if are_distributions(logits, targets):
        raise ValueError(f"{loss} takes one label per sample, not a distribution: {reason}")


def nll_of_targets(logits: Tensor, targets: Tensor) -> Tensor:
    """`-log p` of the label, of shape (samples,); or with distributions of every class.

    The latter is of shape (samples, classes), and `expected` makes one number per sample of it.
    """
    if are_distributions(logits, targets):
        return -logits.log_softmax(dim=-1)
    return F.cross_entropy(logits, targets, reduction="none")


def expected(losses: Tensor, targets: Tensor) -> Tensor:
    """The mean by the distribution of a sample, of what `nll_of_targets` led to. Shape (samples,).

    Without distributions there is one loss per sample already.
    """
    if losses.ndim < DISTRIBUTION_DIMENSIONS:
        return losses
    return (targets.to(losses) * losses).sum(dim=-1)
