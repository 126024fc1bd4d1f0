"""Which classes are labelled as which, estimated from the labels alone, and what follows from it.

A label that differs from the class a sample looks like is more suspicious where people hardly ever
confuse the two. `docs/suspicion.md` has the derivation.

How probable each class is before an image is looked at, estimated from the numbers of labels.

The share of a class among few labels is mostly chance. It also counts the wrong labels on the side
of the class they name: six labels of a class, one of them wrong, beside four of the class that lost
it make the wrong one look right. So the shares are drawn towards equal ones, as far as the numbers
of labels themselves say that they should be.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.gaussians.products import Workspace, argmax, logsumexp


@dataclass(frozen=True)
class LabelVerdict:
    """What is thought of the labels of some samples. Each of shape (samples,).

    Attributes:
        suspicion: Log-odds that the label is wrong, float64; NaN where there is no other class or
            none without the sample.
    """

    suspicion: Tensor
    suspected: Tensor


def add_label_sums(log_joint: Tensor, labels: Tensor, total: Tensor) -> None:
    """Adds the probabilities of the classes of samples to sums by their given label, (samples,).

    `log_joint` is the log-density plus log-prior of each class, (samples, classes); samples with
    NaN do not count. The total, (classes, classes), has rows for given labels and columns for
    likely classes.
    """
    known = ~log_joint.gather(1, labels[:, None])[:, 0].isnan()
    total.index_add_(0, labels[known], log_joint[known].softmax(dim=1).to(total.dtype))


def log_noise(sums: Tensor) -> Tensor:
    """Logarithm of the probability of each given label where a class is right. (classes, classes).

    From sums of `add_label_sums`, times the number of all samples for each that they are over; a
    sample of each pair is added to what was seen. Rows are for given labels, columns for right
    classes, and the exponentials of each column sum to 1.
    """
    weights = 1 + sums
    return (weights / weights.sum(dim=0)).log()


def gain_of_noise(log_joint: Tensor, labels: Tensor, sums: Tensor, counted: Tensor) -> Tensor:
    """Log-probability of labels with noise minus that without, each sample left out of the noise.

    In nats, float64, shape (samples,); NaN for a sample that has no density. `log_joint` is as for
    `add_label_sums`, the sums as for `log_noise`; `counted`, (samples,), is their scale for samples
    that they are over, 0 for others.
    """
    logs = log_joint.double().log_softmax(dim=1)
    likely = logs.exp()
    own = counted[:, None] * likely
    weights = 1 + sums[labels] - own
    noisy = (likely * weights / (len(sums) + sums.sum(dim=0) - own)).sum(dim=1).log()
    return noisy - logs.gather(1, labels[:, None])[:, 0]


def judge_labels(
    log_joint: Tensor, labels: Tensor, noise: Tensor | None, work: Workspace
) -> LabelVerdict:
    """Log-odds of all other classes together against the label; overwrites `log_joint`.

    That and the labels are as for `add_label_sums`. The noise is from `log_noise`, in the same
    dtype; None for no difference between classes.
    """
    posterior = log_joint
    if noise is not None:
        noise_of_rows = work.matrix("noise", len(log_joint), len(noise), noise)
        posterior = log_joint.add_(torch.index_select(noise, 0, labels, out=noise_of_rows))
    place = labels[:, None]
    own = posterior.gather(1, place)[:, 0].double()
    posterior.scatter_(1, place, -torch.inf)
    suspected = argmax(posterior)
    suspicion = logsumexp(posterior).double() - own
    return LabelVerdict(torch.where(suspicion.isfinite(), suspicion, torch.nan), suspected)


PSEUDO_COUNTS = (*(10.0 ** (half / 2) for half in range(-2, 13)), math.inf)
"""Samples that may be added to each class, from 0.1 to a million; inf for equal shares."""


def log_class_prior(counts: Tensor) -> Tensor:
    """Logarithm of the probability of each class, with the likeliest of PSEUDO_COUNTS.

    Every label is predicted from the numbers of the other ones, n_k, as (n_k + c) / (n + K c); the
    number c at which the labels are most probable is taken. Where classes are about equally large
    by chance, that is inf; where they differ for sure, it is too small to matter. In nats, float64,
    shape (classes,); minus infinity for a class without samples. The exponentials sum to 1.
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
