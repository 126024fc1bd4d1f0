"""Factors a covariance into its whitening map, as far as its condition number allows.

Without shrinkage a well-conditioned covariance stays as it is, and an ill-conditioned one loses the
directions that hold only rounding noise.

Shrinkage of a covariance towards a multiple of the identity.

A shrunk covariance is (1 - intensity) * covariance + intensity * (trace / dim) * identity: the
ridge is relative to the mean variance, so the units of the features do not matter.
"""

import math
from dataclasses import dataclass

import numpy as np
import scipy.linalg.lapack
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import Setting, StatisticsError
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.products import (
    add_upper_gram,
    mirror_upper,
    one_thread_per_product,
)


def shrink(covariance: Tensor, intensity: float) -> Tensor:
    """Shrinks a covariance towards a multiple of the identity; shape (dim, dim)."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    return (1 - intensity) * covariance + intensity * covariance.trace() / len(
        covariance
    ) * identity


def oas_intensity(covariance: Tensor, num_samples: int) -> float:
    """Oracle approximating shrinkage (Chen et al. 2010, equation 23), in [0, 1].

    The covariance is that of maximum likelihood, divided by the number of samples.
    """
    dim = len(covariance)
    mean_variance = covariance.trace() / dim
    mean_square = covariance.square().mean()
    numerator = mean_square + mean_variance**2
    denominator = (num_samples + 1) * (mean_square - mean_variance**2 / dim)
    return 1.0 if denominator <= 0 else min(float(numerator / denominator), 1.0)


def ledoit_wolf_intensity(covariance: Tensor, num_samples: int, mean_fourth_power: float) -> float:
    """Optimal shrinkage under squared error (Ledoit and Wolf 2004, section 3.3), in [0, 1].

    The fourth power is the mean of those of the lengths of the centred samples.
    """
    squared_norm = float(covariance.square().sum())
    distance = squared_norm - float(covariance.trace()) ** 2 / len(covariance)
    noise = (mean_fourth_power - squared_norm) / num_samples
    return 0.0 if distance <= 0 else min(max(noise, 0.0), distance) / distance


WORST_CONDITION = {"float32": 1e8, "float64": 1e14}
"""Largest condition number with which a covariance is inverted, by the dtype of the products."""

ROOT_ERROR = 1e-12
"""Largest error of a low-rank root, as a share of the largest variance."""

ALL_THE_SAME = "all features are the same, so distances between them are undefined"

NOISE_FLOOR = {"float32": 1e-6, "float64": 1e-10}
"""Share of the largest eigenvalue below which one is rounding noise, by the dtype of the matrix
products."""


@dataclass(frozen=True)
class Factor:
    """The whitening map of a covariance, under which it becomes the identity.

    Attributes:
        whitening: Whitening map, lower triangular if no direction was dropped. Shape (rank, dim).
        intensity: Shrinkage intensity: share of the covariance replaced by its mean variance.
        condition: Condition number of the unshrunk covariance, in the 1-norm.
        ridge: Variance that was added to every direction, as a share of the mean variance of all
            samples.
        root: Root of the unshrunk covariance from far fewer samples than dimensions, see
            `low_rank_root`, from which `rebuild` makes the whitening map; None for any other.
            Shape (covariance rank, dim).
    """

    whitening: Tensor
    intensity: float
    condition: float
    ridge: float = 0.0
    root: Tensor | None = None

    @property
    def rank(self) -> int:
        """Number of directions that were kept."""
        return len(self.whitening)

    @property
    def summary(self) -> str:
        """How the covariance came out, in words."""
        return (
            f"condition number {self.condition:.2g}, rank {self.rank}, "
            f"shrinkage {self.intensity:.2g}, ridge {self.ridge:.2g}"
        )

    @property
    def plain(self) -> bool:
        """Whether the covariance is neither shrunk nor truncated; it may have a ridge."""
        return self.intensity == 0 and self.whitening.shape[0] == self.whitening.shape[1]


def factorise(
    covariance: Tensor, options: FitOptions, num_samples: int, mean_fourth_power: float
) -> Factor:
    """The whitening map of one covariance, (dim, dim), by the shrinkage rule of the options.

    Their dtype of the matrix products sets the noise floor. The fourth power, see
    `ledoit_wolf_intensity`, is NaN if not computed.
    """
    scale_tril = _cholesky(covariance)
    condition = _condition(covariance, scale_tril)
    intensity = _intensity(covariance, options, num_samples, mean_fourth_power)
    if intensity > 0:
        scale_tril = _cholesky(shrink(covariance, intensity))
    elif condition > WORST_CONDITION[options.matmul_dtype]:
        return Factor(_truncated_whitening(covariance, options.matmul_dtype), 0.0, condition)
    if scale_tril is None:
        raise StatisticsError(ALL_THE_SAME)
    return Factor(_whitening(scale_tril), intensity, condition)


def factorise_with_ridge(covariance: Tensor, ridge: float, variance: float) -> Factor:
    """The whitening map of a covariance with `ridge`, above 0, of `variance` on its diagonal."""
    identity = torch.eye(len(covariance), dtype=covariance.dtype)
    scale_tril = _cholesky(covariance + ridge * variance * identity)
    if scale_tril is None:
        raise StatisticsError(ALL_THE_SAME)
    return Factor(_whitening(scale_tril), 0.0, condition_number(covariance), ridge)


def rebuild(
    root: Tensor, intensity: float, condition: float, ridge: float, variance: float
) -> Factor:
    """The factor of a covariance that was shrunk or has a ridge, from its root.

    Args:
        root: See `low_rank_root`. Shape (covariance rank, dim).
        variance: Mean variance of all samples.
    """
    covariance = gram(root)
    if intensity > 0:
        covariance = shrink(covariance, intensity)
    covariance.diagonal().add_(ridge * variance)
    scale_tril = _cholesky(covariance)
    if scale_tril is None:
        raise StatisticsError(ALL_THE_SAME)
    return Factor(_whitening(scale_tril), intensity, condition, ridge, root)


def low_rank_root(matrix: Tensor, num_rows: int) -> Tensor | None:
    """The smallest matrix whose Gram matrix, `gram`, is a given one up to its rounding.

    Args:
        matrix: Positive semidefinite sum over rows. Shape (dim, dim).
        num_rows: Number of rows in the sum, which bounds the rank.

    Returns:
        Shape (rank, dim). None where the rank may exceed half the dimensions, and where the matrix
        holds more noise than float64 leaves, such as that of float32 products.
    """
    if 2 * num_rows > len(matrix):
        return None
    triangle, pivots, rank, _ = scipy.linalg.lapack.dpstrf(matrix.numpy())
    if 2 * rank > len(matrix):
        return None
    root = torch.zeros(rank, len(matrix), dtype=matrix.dtype)
    root[:, torch.from_numpy(pivots - 1).long()] = torch.from_numpy(np.triu(triangle[:rank]))
    error = float((gram(root) - matrix).abs().max())
    return root if error <= ROOT_ERROR * float(matrix.diagonal().max()) else None


@one_thread_per_product()
def gram(root: Tensor) -> Tensor:
    """The product rootᵀ root of a root, (rank, dim). Shape (dim, dim)."""
    product = torch.zeros(root.shape[1], root.shape[1], dtype=root.dtype)
    add_upper_gram(root.contiguous(), product)
    return mirror_upper(product)


def whiten_with_ridge(covariance: Tensor, ridge: float, variance: float) -> Tensor:
    """As the whitening map of `factorise_with_ridge`, in the memory of the covariance."""
    covariance.diagonal().add_(ridge * variance)
    # LAPACK reads the symmetric matrix transposed, which is the order that it need not copy.
    transposed = covariance.numpy().T
    root, failed = scipy.linalg.lapack.dpotrf(transposed, lower=1, overwrite_a=1)
    if failed:
        raise StatisticsError(ALL_THE_SAME)
    whitening, _ = scipy.linalg.lapack.dtrtri(root, lower=1, overwrite_c=1)
    return torch.from_numpy(whitening)


def _whitening(scale_tril: NDArray[np.float64]) -> Tensor:
    """Inverse of a Cholesky factor; shape (dim, dim)."""
    inverse, _ = scipy.linalg.lapack.dtrtri(scale_tril, lower=1)
    return torch.from_numpy(np.tril(inverse))


@one_thread_per_product()
def condition_number(covariance: Tensor) -> float:
    """LAPACK's estimate of the condition number in the 1-norm; infinite if not definite."""
    return _condition(covariance, _cholesky(covariance))


def _cholesky(covariance: Tensor) -> NDArray[np.float64] | None:
    """Lower triangular factor, or None if the covariance is not positive definite."""
    scale_tril, failed = scipy.linalg.lapack.dpotrf(covariance.numpy(), lower=1)
    return None if failed else scale_tril


def _condition(covariance: Tensor, scale_tril: NDArray[np.float64] | None) -> float:
    if scale_tril is None:
        return math.inf
    norm = float(covariance.abs().sum(dim=0).max())
    reciprocal, _ = scipy.linalg.lapack.dpocon(scale_tril, norm, uplo="L")
    return 1 / reciprocal if reciprocal > 0 else math.inf


def _intensity(
    covariance: Tensor, options: FitOptions, num_samples: int, mean_fourth_power: float
) -> float:
    if options.shrinkage in ("auto", "none", "leave-one-out"):
        return 0.0
    if options.shrinkage == "oas":
        return oas_intensity(covariance, num_samples)
    if options.needs_fourth_powers:
        if math.isnan(mean_fourth_power):
            raise StatisticsError(
                "the Ledoit-Wolf intensity needs a pass over the features",
                "fit the Gaussians with ",
                Setting("shrinkage", "auto"),
                ", oas or a number, or merge the stores and fit them once",
                parameter="shrinkage",
            )
        return ledoit_wolf_intensity(covariance, num_samples, mean_fourth_power)
    intensity = float(options.shrinkage)
    if not 0 <= intensity <= 1:
        raise StatisticsError(f"shrinkage {intensity} is outside 0 to 1", parameter="shrinkage")
    return intensity


def _truncated_whitening(covariance: Tensor, matmul_dtype: str) -> Tensor:
    """Whitening map of the directions above the noise floor; shape (rank, dim)."""
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    kept = eigenvalues > NOISE_FLOOR[matmul_dtype] * eigenvalues[-1]
    if not kept.any():
        raise StatisticsError(ALL_THE_SAME)
    return eigenvectors[:, kept].T / eigenvalues[kept, None].sqrt()
