"""How probable each class is before an image is looked at, estimated from the numbers of labels.

The share of a class among few labels is mostly chance. It also counts the wrong labels on the side
of the class they name: six labels of a class, one of them wrong, beside four of the class that lost
it make the wrong one look right. So the shares are drawn towards equal ones, as far as the numbers
of labels themselves say that they should be.
"""

import math

import torch
from torch import Tensor

PSEUDO_COUNTS = (*(10.0 ** (half / 2) for half in range(-2, 13)), math.inf)
"""Samples that may be added to each class, from 0.1 to a million; inf for equal shares."""


def log_class_prior(counts: Tensor) -> Tensor:
    """Logarithm of the probability of each class, with the likeliest of PSEUDO_COUNTS.

    Every label is predicted from the numbers of the other ones, n_k, as (n_k + c) / (n + K c); the
    number c at which the labels are most probable is taken. Where classes are about equally large
    by chance, that is inf; where they differ for sure, it is too small to matter.

    Args:
        counts: Number of samples of each class. Shape (classes,).

    Returns:
        In nats, float64; minus infinity for a class without samples. The exponentials sum to 1.
        Shape (classes,).
    """
    present = counts > 0
    prior = torch.full(counts.shape, -torch.inf, dtype=torch.float64)
    counts = counts[present].double()
    best = max(reversed(PSEUDO_COUNTS), key=lambda added: _evidence(counts, added))
    prior[present] = _smoothed(counts, best)
    return prior


def _smoothed(counts: Tensor, added: float) -> Tensor:
    if math.isinf(added):
        return torch.full_like(counts, -math.log(len(counts)))
    return ((counts + added) / (counts.sum() + len(counts) * added)).log()


def _evidence(counts: Tensor, added: float) -> float:
    """Log-probability of all labels, each predicted from the others, in nats."""
    if math.isinf(added):
        return -float(counts.sum()) * math.log(len(counts))
    others = float(counts.sum()) - 1
    return float(counts @ ((counts - 1 + added) / (others + len(counts) * added)).log())
