"""Shrinkage of a covariance towards a multiple of the identity.

A shrunk covariance is (1 - intensity) * covariance + intensity * (trace / dim) * identity: the
ridge is relative to the mean variance, so the units of the features do not matter.
"""

import torch
from torch import Tensor


def shrink(covariance: Tensor, intensity: float) -> Tensor:
    """Shrinks a covariance towards a multiple of the identity; shape (dim, dim)."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    return (1 - intensity) * covariance + intensity * covariance.trace() / len(
        covariance
    ) * identity


def oas_intensity(covariance: Tensor, num_samples: int) -> float:
    """Oracle approximating shrinkage (Chen et al. 2010, equation 23), in [0, 1].

    Args:
        covariance: Maximum-likelihood covariance, divided by the number of samples.
        num_samples: Number of samples it was estimated from.
    """
    dim = len(covariance)
    mean_variance = covariance.trace() / dim
    mean_square = covariance.square().mean()
    numerator = mean_square + mean_variance**2
    denominator = (num_samples + 1) * (mean_square - mean_variance**2 / dim)
    return 1.0 if denominator <= 0 else min(float(numerator / denominator), 1.0)


def ledoit_wolf_intensity(covariance: Tensor, num_samples: int, mean_fourth_power: float) -> float:
    """Optimal shrinkage under squared error (Ledoit and Wolf 2004, section 3.3), in [0, 1].

    Args:
        covariance: Maximum-likelihood covariance, divided by the number of samples.
        num_samples: Number of samples it was estimated from.
        mean_fourth_power: Mean fourth power of the lengths of the centred samples.
    """
    squared_norm = float(covariance.square().sum())
    distance = squared_norm - float(covariance.trace()) ** 2 / len(covariance)
    noise = (mean_fourth_power - squared_norm) / num_samples
    return 0.0 if distance <= 0 else min(max(noise, 0.0), distance) / distance
