"""Cross-entropy and the regularisers that add one term to it, the same for every sample."""

from torch import Tensor
from torch.nn import functional as F

from trainer.losses.constants import require_at_least
from trainer.losses.targets import are_distributions, expected, nll_of_targets


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Negative log-probability of the target: `-log p_t`, or `-sum_k q_k log p_k`.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).

    Returns:
        One loss per sample, in nats. Shape (samples,).
    """
    return expected(nll_of_targets(logits, targets), targets)


def label_smoothing(logits: Tensor, targets: Tensor, *, smoothing: float = 0.05) -> Tensor:
    """Cross-entropy against `(1 - smoothing) * one_hot + smoothing / classes`, as in torch.

    Mukhoti et al. (2020) write `(1 - a) * one_hot + a * (1 - one_hot) / (classes - 1)` instead.
    Both are the same loss with `a = smoothing * (classes - 1) / classes`: their 0.05 is a smoothing
    of 0.0556 here with 10 classes, 0.0526 with 20, 0.0505 with 100 and 0.0503 with 200. Szegedy et
    al. (2016) introduced it.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        smoothing: Fraction of the target spread evenly over all classes, from 0 to 1.

    Returns:
        One loss per sample, in nats. Shape (samples,).
    """
    if are_distributions(logits, targets):
        targets = targets.to(logits)
    return F.cross_entropy(logits, targets, reduction="none", label_smoothing=smoothing)


def poly_loss(logits: Tensor, targets: Tensor, *, epsilon: float = 2.0) -> Tensor:
    """Poly-1: `-log p_t + epsilon * (1 - p_t)`, a larger first term of the series of the log.

    Leng et al. (2022), who use epsilon 2 on ImageNet and require -1 or more. Of a distribution q,
    p_t is `sum_k q_k p_k`, as in their code.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        epsilon: Added to the coefficient of `1 - p_t`; zero gives plain cross-entropy.

    Returns:
        One loss per sample. Shape (samples,).
    """
    require_at_least(-1, epsilon=epsilon)
    loss = nll_of_targets(logits, targets)
    return expected(loss + epsilon * (1 - (-loss).exp()), targets)


def logit_l1(logits: Tensor, targets: Tensor, *, coefficient: float = 0.003) -> Tensor:
    """Cross-entropy plus `coefficient * sum_k |logit_k|`, a norm in the space of functions.

    Joo and Chung (2020) do not state whether classes are summed or averaged; here they are
    summed, so the coefficient of an average is this one times the number of classes. We know of no
    published coefficient; the default is the best on validation data of probes on CIFAR-10
    (docs/findings.md).

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        coefficient: Strength of the norm; zero gives plain cross-entropy.

    Returns:
        One loss per sample. Shape (samples,).
    """
    require_at_least(0, coefficient=coefficient)
    return cross_entropy(logits, targets) + coefficient * logits.abs().sum(dim=-1)


def entropy(logits: Tensor) -> Tensor:
    """Entropy of the predicted distribution: `-sum_k p_k log p_k`.

    Args:
        logits: Finite. Shape (samples, classes).

    Returns:
        From 0 to log(classes), in nats. Shape (samples,).
    """
    log_probabilities = logits.log_softmax(dim=-1)
    return -(log_probabilities.exp() * log_probabilities).sum(dim=-1)


def entropy_regularised(logits: Tensor, targets: Tensor, *, alpha: float = 0.18) -> Tensor:
    """Cross-entropy minus `alpha * entropy`, which penalises confidence.

    Pereyra et al. (2017). Cui et al. (2023) find alpha 0.1 best on ImageNet; the default is the
    best on validation data of probes on CIFAR-10 (docs/findings.md). It is the difficulty term of
    `trainer.training.objective` with all weights one: use one or the other, not both.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        alpha: Strength; zero gives plain cross-entropy.

    Returns:
        One loss per sample, in nats, negative where the entropy outweighs it. Shape (samples,).
    """
    require_at_least(0, alpha=alpha)
    return cross_entropy(logits, targets) - alpha * entropy(logits)
