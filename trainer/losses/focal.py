"""Focal losses: confident samples weigh less, by a fixed, scheduled or per-sample gamma.

Dual focal loss, weighted by the lead of the target over the next less probable class.

Gammas are exponents chosen by the probability of the target. Which side of a threshold a
probability of exactly one fifth or one half falls on would be a matter of rounding, and processors
round exponentials differently: so a probability within rounding error of a threshold is at it, with
the larger ones.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import lambertw
from torch import Tensor

from trainer.losses.constants import require_at_least
from trainer.losses.targets import are_distributions, expected, nll_of_targets

# Target probabilities at which the published gammas change.
_HARD_BELOW = 0.2
_EASY_FROM = 0.5
# Units of the last place by which processors may differ.
_ROUNDING = 8
# Below this probability gamma grows like 1 / p and the formula loses its digits.
_SMALLEST_PROBABILITY = 1e-6
# Argument of Lambert's function up to which the series about its branch point is the better start.
_BRANCH_POINT_UP_TO = -0.25
# Of Halley's method, which triples the number of right digits.
_HALLEY_STEPS = 4

Function = Callable[[Any], Any]


def gamma_53(probabilities: Tensor) -> Tensor:
    """Gamma of FLSD-53: 5 below a target probability of 0.2, 3 from there on. Shape as given."""
    return 3.0 + 2.0 * _is_below(probabilities, _HARD_BELOW).to(probabilities)


def gamma_532(probabilities: Tensor) -> Tensor:
    """Gamma of FLSD-532: 5 below a target probability of 0.2, 3 below 0.5, 2 from there on."""
    return gamma_53(probabilities) - (~_is_below(probabilities, _EASY_FROM)).to(probabilities)


def lambert_gamma(probabilities: Tensor, *, largest_gamma: float = 5.0) -> Tensor:
    """The gamma at which focal loss and cross-entropy have gradients of the same norm.

    It solves `(1 - p)**g - g p (1 - p)**(g - 1) log p = 1`. A sample less probable than p has a
    larger gradient than with cross-entropy, and a more probable one a smaller gradient. Mukhoti et
    al. (2020), proposition 2: `g = a + W(-b) / log(1 - p)` with `a = (1 - p) / (p log p)`,
    `b = (1 - p)**(1 - a) / (p log p) * log(1 - p)` and W the lower branch of Lambert's function.
    From p = 0.5 on, zero is the only solution.

    Args:
        probabilities: Probability of the target, from 0 to 1. Shape (samples,).
        largest_gamma: Upper bound of the result.

    Returns:
        One gamma per sample, from 0 to `largest_gamma`. Shape (samples,).
    """
    require_at_least(0, largest_gamma=largest_gamma)
    exact = probabilities.detach().double()
    p = exact.clamp(_SMALLEST_PROBABILITY, _EASY_FROM)
    if p.device.type == "cpu":
        solved = torch.from_numpy(_solve(p.numpy(), np.log, np.log1p, _lambert_of_scipy))
    else:
        solved = _solve(p, torch.log, torch.log1p, lower_lambert)
    gamma = torch.where(exact >= _EASY_FROM, 0.0, solved.clamp(0.0, largest_gamma))
    return gamma.to(probabilities)


def _solve(p: Any, log: Function, log1p: Function, lambert: Function) -> Any:  # noqa: ANN401 - array or tensor
    """The formula of `lambert_gamma`, by the functions of NumPy or of PyTorch."""
    a = (1 - p) / (p * log(p))
    b = (1 - p) ** (1 - a) / (p * log(p)) * log1p(-p)
    return a + lambert(-b) / log1p(-p)


def _lambert_of_scipy(values: NDArray[np.float64]) -> NDArray[np.float64]:
    lower: NDArray[np.float64] = lambertw(values, k=-1).real
    return lower


def lower_lambert(values: Tensor) -> Tensor:
    """The lower branch of Lambert's function. Float64, of the shape of the values.

    PyTorch has none, and with SciPy's every step would wait for the GPU.

    Args:
        values: From -1/e to -1e-6, where the start is good enough for the number of iterations.
    """
    # Corless et al. (1996), equation 4.22 about the branch point at -1/e, and 4.19 towards zero.
    root = -(2 * (math.e * values + 1)).clamp_min(0).sqrt()
    near = -1 + root - root**2 / 3 + 11 / 72 * root**3
    outer = (-values).log()
    inner = (-outer).log()
    lambert = torch.where(values < _BRANCH_POINT_UP_TO, near, outer - inner + inner / outer)
    for _ in range(_HALLEY_STEPS):
        exponential = lambert.exp()
        error = lambert * exponential - values
        above = lambert + 1
        step = error / (exponential * above - (above + 1) * error / (2 * above))
        # At the branch point the slope is zero, and the start is the result.
        lambert = torch.where(step.isfinite(), lambert - step, lambert)
    return lambert


def _is_below(probabilities: Tensor, threshold: float) -> Tensor:
    """Whether probabilities are below a threshold by more than rounding error. Same shape."""
    return probabilities < threshold * (1 - _ROUNDING * torch.finfo(probabilities.dtype).eps)


def focal(logits: Tensor, targets: Tensor, *, gamma: float = 3.0) -> Tensor:
    """`-(1 - p_t) ** gamma * log p_t`. Lin et al. (2017); for calibration Mukhoti et al. (2020).

    Of a distribution q, `-sum_k q_k (1 - p_k) ** gamma log p_k`, as Mukhoti et al. write it.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        gamma: Exponent, zero or more; zero gives plain cross-entropy.

    Returns:
        One loss per sample. Shape (samples,).
    """
    require_at_least(0, gamma=gamma)
    loss = nll_of_targets(logits, targets)
    return expected(_focal_weight(loss, gamma) * loss, targets)


def focal_gra(logits: Tensor, targets: Tensor, *, gamma: float = 3.0) -> Tensor:
    """Focal loss whose weight `(1 - p_t) ** gamma` is a constant to the gradient.

    The gradient is therefore that of cross-entropy, scaled per sample (arXiv 2503.22725).

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        gamma: Exponent, zero or more; zero gives plain cross-entropy.

    Returns:
        One loss per sample, equal in value to `focal`. Shape (samples,).
    """
    require_at_least(0, gamma=gamma)
    loss = nll_of_targets(logits, targets)
    return expected(_focal_weight(loss, gamma).detach() * loss, targets)


def flsd_53(logits: Tensor, targets: Tensor) -> Tensor:
    """Focal loss with gamma 5 where `p_t < 0.2` and 3 elsewhere. Mukhoti et al. (2020).

    No gradient flows through the choice of gamma.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).

    Returns:
        One loss per sample. Shape (samples,).
    """
    return _own_gamma_focal(logits, targets, gamma_53)


def flsd_532(logits: Tensor, targets: Tensor) -> Tensor:
    """Focal loss with gamma 5 where `p_t < 0.2`, 3 below 0.5 and 2 elsewhere.

    Mukhoti et al. (2020), whose training scripts also call it FLSD-52.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).

    Returns:
        One loss per sample. Shape (samples,).
    """
    return _own_gamma_focal(logits, targets, gamma_532)


def flsd_53_gra(logits: Tensor, targets: Tensor) -> Tensor:
    """`flsd_53` whose weight is a constant to the gradient (arXiv 2503.22725).

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).

    Returns:
        One loss per sample, equal in value to `flsd_53`. Shape (samples,).
    """
    loss = nll_of_targets(logits, targets)
    weight = _focal_weight(loss, gamma_53((-loss).detach().exp())).detach()
    return expected(weight * loss, targets)


def lambert_focal(logits: Tensor, targets: Tensor, *, largest_gamma: float = 5.0) -> Tensor:
    """Focal loss with a gamma from the `p_t` of each sample, at most `largest_gamma`.

    Mukhoti et al. (2020), proposition 2 (`lambert_gamma`); they train with its rounded values at
    0.2 and 0.25, which are `flsd_53`.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        largest_gamma: Upper bound of gamma, which would otherwise diverge as `p_t` nears zero.

    Returns:
        One loss per sample. Shape (samples,).
    """

    def gamma_of(probabilities: Tensor) -> Tensor:
        return lambert_gamma(probabilities, largest_gamma=largest_gamma)

    return _own_gamma_focal(logits, targets, gamma_of)


@dataclass(frozen=True)
class GammaSchedule:
    """Gamma by stages of epochs: 5, then 3, then 1 in FL-5,3,1 of Mukhoti et al. (2020).

    Attributes:
        gammas: Gamma of each stage, one more than there are boundaries.
        boundaries: First epoch of every stage but the first, counted from zero; or, where
            `fractional`, the fraction of all epochs before it.
        fractional: Whether boundaries are fractions from 0 to 1 rather than epochs.

    Raises:
        ValueError: Numbers of gammas and boundaries do not fit, a gamma is below zero, or
            boundaries are not ascending, or neither epochs nor fractions.
    """

    gammas: tuple[float, ...] = (5.0, 3.0, 1.0)
    boundaries: tuple[float, ...] = (100, 250)
    fractional: bool = False

    def __post_init__(self) -> None:
        if len(self.gammas) != len(self.boundaries) + 1:
            raise ValueError(
                f"{len(self.gammas)} gammas and {len(self.boundaries)} boundaries do not fit; "
                "give one gamma more than boundaries"
            )
        require_at_least(0, **{f"gammas[{at}]": gamma for at, gamma in enumerate(self.gammas)})
        if not self.fractional and any(boundary % 1 for boundary in self.boundaries):
            raise ValueError(
                f"boundaries {self.boundaries} must be whole epochs where fractional is false"
            )
        if list(self.boundaries) != sorted(self.boundaries):
            raise ValueError(f"boundaries {self.boundaries} must be ascending")
        if self.fractional and not all(0 <= boundary <= 1 for boundary in self.boundaries):
            raise ValueError(
                f"boundaries {self.boundaries} must be from 0 to 1 where fractional is true"
            )

    def gamma(self, epoch: int, epochs: int) -> float:
        """Gamma of one epoch, counted from zero, of so many epochs."""
        # Epochs, not fractions, are compared: 0.3 * 10 and 3 / 10 round differently.
        scale = epochs if self.fractional else 1
        stage = sum(epoch >= round(boundary * scale, 9) for boundary in self.boundaries)
        return self.gammas[stage]


class ScheduledFocal:
    """Focal loss whose `gammas` change at the epochs `boundaries`, or at such shares of epochs.

    The hook `before_epoch` updates gamma.

    Mukhoti et al. (2020): 5,3,1 and 5,3,2 at epochs 100 and 250 of 350 on CIFAR, at 30 and 70 of
    100 on Tiny-ImageNet.
    """

    def __init__(
        self,
        *,
        gammas: tuple[float, ...] = (5.0, 3.0, 1.0),
        boundaries: tuple[float, ...] = (100, 250),
        fractional: bool = False,
    ) -> None:
        self.schedule = GammaSchedule(tuple(gammas), tuple(boundaries), fractional)
        self.gamma = self.schedule.gammas[0]

    def before_epoch(self, epoch: int, epochs: int) -> None:
        """Sets the gamma of an epoch, counted from zero, of `epochs`."""
        self.gamma = self.schedule.gamma(epoch, epochs)

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        """`focal` with the gamma of this epoch."""
        return focal(logits, targets, gamma=self.gamma)


def _own_gamma_focal(
    logits: Tensor, targets: Tensor, gamma_of: Callable[[Tensor], Tensor]
) -> Tensor:
    """Focal loss with a gamma for each target, chosen by its probability."""
    loss = nll_of_targets(logits, targets)
    return expected(_focal_weight(loss, gamma_of((-loss).detach().exp())) * loss, targets)


def _focal_weight(loss: Tensor, gamma: float | Tensor) -> Tensor:
    """`(1 - p_t) ** gamma` from cross-entropy."""
    # A gamma below 1 has an infinite slope at 0, where a p_t that rounds to 1 lies.
    smallest = torch.finfo(loss.dtype).tiny
    return (1 - (-loss).exp()).clamp_min(smallest) ** gamma


def dual_focal(logits: Tensor, targets: Tensor, *, gamma: float = 5.0) -> Tensor:
    """`-(1 - p_t + p_j) ** gamma * log p_t`, p_j the largest probability strictly below p_t.

    Tao et al. (2023). p_j is zero where the target is least probable, and classes tied with the
    target do not count. The gradient flows through p_j too. Of a distribution, the mean of the
    losses of all classes by it, each with its own p_j.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        gamma: Exponent, zero or more; zero gives plain cross-entropy.

    Returns:
        One loss per sample. Shape (samples,).
    """
    loss = nll_of_targets(logits, targets)
    return expected(_dual_focal_weight(logits, targets, gamma) * loss, targets)


def dual_focal_gra(logits: Tensor, targets: Tensor, *, gamma: float = 5.0) -> Tensor:
    """Dual focal loss whose whole weight is a constant to the gradient (arXiv 2503.22725).

    The code published with that paper detaches p_j alone and leaves the gradient of p_t in the
    weight, which is another loss; this one follows the text.

    Args:
        logits: Shape (samples, classes).
        targets: Class indices of shape (samples,), or distributions of shape (samples, classes).
        gamma: Exponent, zero or more; zero gives plain cross-entropy.

    Returns:
        One loss per sample, equal in value to `dual_focal`. Shape (samples,).
    """
    weight = _dual_focal_weight(logits.detach(), targets, gamma)
    return expected(weight * nll_of_targets(logits, targets), targets)


def _dual_focal_weight(logits: Tensor, targets: Tensor, gamma: float) -> Tensor:
    """`(1 - p_t + p_j) ** gamma`, of the target or of every class, as `nll_of_targets`."""
    require_at_least(0, gamma=gamma)
    probabilities = logits.softmax(dim=-1)
    if are_distributions(logits, targets):
        own, below = probabilities, _next_less_probable(logits, probabilities)
    else:
        own = probabilities.gather(-1, targets.unsqueeze(-1)).squeeze(-1)
        # Logits are compared: equal ones can have probabilities that differ in the last digit. Of
        # tied classes below the target only one receives the gradient, as in the published code.
        is_below = logits < logits.gather(-1, targets.unsqueeze(-1))
        below = torch.where(is_below, probabilities, 0.0).topk(1).values.squeeze(-1)
    # A gamma below 1 has an infinite slope at 0, where a p_t that rounds to 1 lies.
    smallest = torch.finfo(logits.dtype).tiny
    return (1 - own + below).clamp_min(smallest) ** gamma


def _next_less_probable(logits: Tensor, probabilities: Tensor) -> Tensor:
    """For every class the largest probability below its own; 0 without any. Shape as given."""
    ascending, order = logits.detach().sort(dim=-1)
    number_below = torch.searchsorted(ascending, logits.detach().contiguous())
    nearest = order.gather(-1, (number_below - 1).clamp_min(0))
    return torch.where(number_below > 0, probabilities.gather(-1, nearest), 0.0)
