"""Which classes are labelled as which, estimated from the labels alone, and what follows from it.

A label that differs from the class a sample looks like is more suspicious where people hardly ever
confuse the two. `docs/suspicion.md` has the derivation.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


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


def label_sums(log_joint: Tensor, labels: Tensor) -> Tensor:
    """Sum over samples, by given label, of the probabilities of their classes; these sums add up.

    Args:
        log_joint: Log-density plus log-prior of each class. Shape (samples, classes).
        labels: Given labels. Shape (samples,).

    Returns:
        float64, rows for given labels, columns for likely classes. Shape (classes, classes).
    """
    known = ~log_joint.isnan().any(dim=1)
    sums = log_joint.new_zeros(log_joint.shape[1], log_joint.shape[1])
    return sums.index_add_(0, labels[known], log_joint[known].softmax(dim=1))


def log_noise(sums: Tensor, scale: float = 1.0) -> Tensor:
    """Logarithm of the probability of each given label where a class is right.

    Args:
        sums: Sums from `label_sums` over some samples. Shape (classes, classes).
        scale: Number of all samples for each of these.

    Returns:
        Rows for given labels, columns for right classes; the exponentials of each column sum to 1,
        and a sample of each pair is added to what was seen. Shape (classes, classes).
    """
    weights = 1 + scale * sums
    return (weights / weights.sum(dim=0)).log()


def judge_labels(log_joint: Tensor, labels: Tensor, noise: Tensor) -> LabelVerdict:
    """Log-odds that labels are wrong.

    Args:
        log_joint: Log-density plus log-prior of each class. Shape (samples, classes).
        labels: Given labels. Shape (samples,).
        noise: From `log_noise`. Shape (classes, classes).
    """
    posterior = log_joint + noise[labels]
    place = labels[:, None]
    own = posterior.gather(1, place)[:, 0]
    posterior.scatter_(1, place, -torch.inf)
    suspected = posterior.argmax(dim=1)
    suspicion = posterior.logsumexp(dim=1) - own
    return LabelVerdict(torch.where(suspicion.isfinite(), suspicion, torch.nan), suspected)


def label_probability(log_joint: Tensor, labels: Tensor, noise: Tensor) -> Tensor:
    """Probability that labels are right, in [0, 1]; arguments as for `judge_labels`.

    Returns:
        NaN where a class has no density. Shape (samples,).
    """
    posterior = (log_joint + noise[labels]).log_softmax(dim=1)
    return posterior.gather(1, labels[:, None])[:, 0].exp()


def log_odds_against(log_joint: Tensor, labels: Tensor) -> Tensor:
    """Log-odds of all other classes together against the label. Shape (samples,)."""
    no_noise = log_joint.new_zeros(log_joint.shape[1], log_joint.shape[1])
    return judge_labels(log_joint, labels, no_noise).suspicion
