"""The Brier score as a loss, and cross-entropy weighted by a generalised Brier score."""

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.losses.constants import require_at_least
from trainer.losses.cross_entropy import cross_entropy
from trainer.losses.focal import gamma_53
from trainer.losses.targets import are_distributions, require_indices

Form = Literal["norm", "sum"]


def brier(logits: Tensor, targets: Tensor) -> Tensor:
    """`sum_k (p_k - one_hot_k) ** 2`. Brier (1950). A distribution takes the place of `one_hot`.

    The code of Mukhoti et al. (2020) divides this loss alone by the batch size, where the others
    are summed: with `reduction = "sum"` its gradient is the batch size times theirs, so take
    "mean". The code of arXiv 2503.22725 sums it, too.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).

    Returns:
        One loss per sample, from 0 to 2. Shape (samples,).
    """
    return _error(logits, targets).square().sum(dim=-1)


def bsce(
    logits: Tensor, targets: Tensor, *, gamma: float = 2.0, beta: float = 2.0, form: Form = "norm"
) -> Tensor:
    """Cross-entropy times the generalised Brier score `u` (arXiv 2503.22725).

    `u = (sum_k |p_k - one_hot_k| ** beta) ** (gamma / beta)`, as in the authors' code; their
    formula as printed is `sum_k |p_k - one_hot_k| ** gamma`, form "sum", where beta has
    no effect. Both agree where beta equals gamma. With beta 1 the norm is `2 * (1 - p_t)`, so
    that the loss is `2 ** gamma` times focal loss. A distribution takes the place of `one_hot`, so
    that u is the distance of the probabilities to it.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        gamma: Exponent of the score, zero or more; zero gives plain cross-entropy (form "norm").
        beta: Order of the norm, one or more.
        form: "norm" or "sum", see above.

    Returns:
        One loss per sample. Shape (samples,).

    Raises:
        ValueError: The form has another name.
    """
    require_at_least(0, gamma=gamma)
    score = _generalised_brier(_error(logits, targets), gamma, beta, form)
    return score * cross_entropy(logits, targets)


def bsce_gra(
    logits: Tensor, targets: Tensor, *, gamma: float = 2.0, beta: float = 2.0, form: Form = "norm"
) -> Tensor:
    """Cross-entropy whose gradient, not value, is scaled by the generalised Brier score.

    Detaching the scale keeps the gradient of an uncertain sample larger than that of a
    certain one, which multiplying two differentiable factors does not (arXiv 2503.22725).

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        gamma: Exponent of the score, zero or more; zero gives plain cross-entropy (form "norm").
        beta: Order of the norm, one or more.
        form: "norm" or "sum", see `bsce`.

    Returns:
        One loss per sample, equal in value to `bsce`. Shape (samples,).

    Raises:
        ValueError: The form has another name.
    """
    require_at_least(0, gamma=gamma)
    score = _generalised_brier(_error(logits.detach(), targets), gamma, beta, form)
    return score * cross_entropy(logits, targets)


def bsce_flsd_53(logits: Tensor, targets: Tensor, *, beta: float = 2.0) -> Tensor:
    """`bsce` with the gammas of FLSD-53: 5 where `p_t < 0.2` and 3 elsewhere.

    No gradient flows through the choice of gamma. The code of arXiv 2503.22725 has only
    `bsce_flsd_53_gra`.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        beta: Order of the norm, one or more; with 1 the loss is `2 ** gamma` times `flsd_53`.

    Returns:
        One loss per sample. Shape (samples,).
    """
    gammas = _gammas(logits, targets)
    score = _generalised_brier(_error(logits, targets), gammas, beta, "norm")
    return score * F.cross_entropy(logits, targets, reduction="none")


def bsce_flsd_53_gra(logits: Tensor, targets: Tensor, *, beta: float = 2.0) -> Tensor:
    """`bsce_gra` with the gammas of FLSD-53, as in the code of arXiv 2503.22725.

    Beta is 1 in that code by default, and 2 in its paper.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).
        beta: Order of the norm, one or more; with 1 the loss is `2 ** gamma` times `flsd_53_gra`.

    Returns:
        One loss per sample, equal in value to `bsce_flsd_53`. Shape (samples,).
    """
    constant = logits.detach()
    gammas = _gammas(constant, targets)
    score = _generalised_brier(_error(constant, targets), gammas, beta, "norm")
    return score * F.cross_entropy(logits, targets, reduction="none")


def _gammas(logits: Tensor, targets: Tensor) -> Tensor:
    """The gamma of FLSD-53 of each sample, without gradient. Shape (samples,)."""
    require_indices(
        logits,
        targets,
        "bsce_flsd_53",
        "its gamma follows from the probability of one label, and is for all classes; take bsce or "
        "flsd_53",
    )
    loss = F.cross_entropy(logits.detach(), targets, reduction="none")
    return gamma_53((-loss).exp())


def _error(logits: Tensor, targets: Tensor) -> Tensor:
    """Probabilities minus one-hot targets or distributions. Shape (samples, classes)."""
    probabilities = logits.softmax(dim=-1)
    if are_distributions(logits, targets):
        return probabilities - targets.to(probabilities)
    # Subtracting `F.one_hot` would make int64 and convert it: slow with many classes.
    minus_one = probabilities.new_full((len(targets), 1), -1.0)
    return probabilities.scatter_add(-1, targets.unsqueeze(-1), minus_one)


def _generalised_brier(error: Tensor, gamma: float | Tensor, beta: float, form: Form) -> Tensor:
    """One score per sample from errors of shape (samples, classes)."""
    require_at_least(1, beta=beta)
    # A gamma below 1 has an infinite slope at 0, where predictions that round to one-hot lie.
    smallest = torch.finfo(error.dtype).tiny
    if form == "norm":
        return torch.linalg.vector_norm(error, ord=beta, dim=-1).clamp_min(smallest) ** gamma
    if form == "sum":
        return (error.abs().clamp_min(smallest) ** gamma).sum(dim=-1)
    raise ValueError(f"no form {form!r} of the Brier score; choose 'norm' or 'sum'")
