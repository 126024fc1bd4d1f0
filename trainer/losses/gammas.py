"""Exponents of focal losses, one per sample, chosen by the probability of its target.

Which side of a threshold a probability of exactly one fifth or one half falls on would be a matter
of rounding, and processors round exponentials differently: so a probability within rounding error
of a threshold is at it, with the larger ones.
"""

import numpy as np
import torch
from scipy.special import lambertw
from torch import Tensor

# Target probabilities at which the published gammas change.
_HARD_BELOW = 0.2
_EASY_FROM = 0.5
# Units of the last place by which processors may differ.
_ROUNDING = 8
# Below this probability gamma grows like 1 / p and the formula loses its digits.
_SMALLEST_PROBABILITY = 1e-6


def gamma_53(probabilities: Tensor) -> Tensor:
    """Gamma of FLSD-53: 5 below a target probability of 0.2, 3 from there on.

    Args:
        probabilities: Probability of the target. Shape (samples,).

    Returns:
        One gamma per sample. Shape (samples,).
    """
    return 3.0 + 2.0 * _is_below(probabilities, _HARD_BELOW).to(probabilities)


def gamma_532(probabilities: Tensor) -> Tensor:
    """Gamma of FLSD-532: 5 below a target probability of 0.2, 3 below 0.5, 2 from there on.

    Args:
        probabilities: Probability of the target. Shape (samples,).

    Returns:
        One gamma per sample. Shape (samples,).
    """
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
    # Torch has no Lambert function; one value per sample is cheap to move to the CPU.
    exact = probabilities.detach().to("cpu", torch.float64).numpy()
    p = np.clip(exact, _SMALLEST_PROBABILITY, _EASY_FROM)
    a = (1 - p) / (p * np.log(p))
    b = (1 - p) ** (1 - a) / (p * np.log(p)) * np.log1p(-p)
    gamma = a + lambertw(-b, k=-1).real / np.log1p(-p)
    gamma = np.where(exact >= _EASY_FROM, 0.0, np.clip(gamma, 0.0, largest_gamma))
    return torch.from_numpy(gamma).to(probabilities)


def _is_below(probabilities: Tensor, threshold: float) -> Tensor:
    """Whether probabilities are below a threshold by more than rounding error. Same shape."""
    return probabilities < threshold * (1 - _ROUNDING * torch.finfo(probabilities.dtype).eps)
