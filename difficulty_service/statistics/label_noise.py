"""Which classes are labelled as which, estimated from the labels alone, and what follows from it.

A label that differs from the class a sample looks like is more suspicious where people hardly ever
confuse the two. `docs/suspicion.md` has the derivation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from difficulty_service.statistics.products import Workspace, argmax, logsumexp


@dataclass(frozen=True)
class LabelVerdict:
    """What is thought of the labels of some samples. Each of shape (samples,).

    Attributes:
        suspicion: Log-odds that the label is wrong, float64; NaN where there is no other class or
            none without the sample.
        suspected: Likeliest class other than the label.
    """

    suspicion: Tensor
    suspected: Tensor


def add_label_sums(log_joint: Tensor, labels: Tensor, total: Tensor) -> None:
    """Adds the probabilities of the classes of samples to sums by their given label.

    Args:
        log_joint: Log-density plus log-prior of each class; samples with NaN do not count.
            Shape (samples, classes).
        labels: Given labels. Shape (samples,).
        total: Sums to add to, rows for given labels, columns for likely classes.
            Shape (classes, classes).
    """
    known = ~log_joint.gather(1, labels[:, None])[:, 0].isnan()
    total.index_add_(0, labels[known], log_joint[known].softmax(dim=1).to(total.dtype))


def log_noise(sums: Tensor) -> Tensor:
    """Logarithm of the probability of each given label where a class is right.

    Args:
        sums: Sums from `add_label_sums`, times the number of all samples for each that they are
            over. Shape (classes, classes).

    Returns:
        Rows for given labels, columns for right classes; the exponentials of each column sum to 1,
        and a sample of each pair is added to what was seen. Shape (classes, classes).
    """
    weights = 1 + sums
    return (weights / weights.sum(dim=0)).log()


def gain_of_noise(log_joint: Tensor, labels: Tensor, sums: Tensor, counted: Tensor) -> Tensor:
    """Log-probability of labels with noise minus that without, each sample left out of the noise.

    Args:
        log_joint: Log-density plus log-prior of each class. Shape (samples, classes).
        labels: Given labels. Shape (samples,).
        sums: Sums from `add_label_sums`, times the scale of `log_noise`. Shape (classes, classes).
        counted: That scale for samples that the sums are over, 0 for others. Shape (samples,).

    Returns:
        In nats; NaN for a sample that has no density. Shape (samples,), float64.
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
    """Log-odds of all other classes together against the label.

    Args:
        log_joint: Log-density plus log-prior of each class; overwritten. Shape (samples, classes).
        labels: Given labels. Shape (samples,).
        noise: From `log_noise`, in the same dtype; None for no difference between classes.
            Shape (classes, classes).
        work: Memory of the calling thread.
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
