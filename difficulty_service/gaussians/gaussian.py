"""Gaussians: class means with a shared covariance, and the mean and covariance of all samples.

Both covariances are divided by the number of samples (Cui et al. 2023, section 3.1), so that the
total covariance is the sum of the covariances within and between classes.
"""

from dataclasses import dataclass, field, replace
from functools import cached_property

import torch
from torch import Tensor

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.factor import (
    Factor,
    factorise,
    factorise_with_ridge,
    low_rank_root,
)
from difficulty_service.gaussians.feature_map import scale_to_unit_length
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.moments import Moments
from difficulty_service.gaussians.products import (
    add_upper_gram,
    mirror_upper,
    one_thread_per_product,
)

MATMUL_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(frozen=True)
class FourthPowers:
    """Mean fourth powers of the distances to the class mean and to the mean of all samples."""

    within: float
    agnostic: float


@dataclass(frozen=True)
class Gaussians:
    """Fitted Gaussians, with what is needed to score samples and to merge. Float64, on the CPU.

    Attributes:
        moments: Moments of the features as they are, by which Gaussians are merged.
        mean: Mean of all samples. Shape (dim,).
        class_means: Mean of each class; NaN for a class without samples. Shape (classes, dim).
        within: Factor of the covariance that all classes share.
        options: Options of the fit, with the dtype that was used in place of `auto`.
        warnings: Warnings for the reader of the scores, one sentence each. None is about classes,
            whose names are not known here.
        centre: Point around which features are scaled to unit length before everything else, so
            that the means and factors are those of unit vectors; None for features as they are.
            Shape (dim,).
    """

    moments: Moments
    mean: Tensor
    class_means: Tensor
    within: Factor
    agnostic: Factor
    options: FitOptions
    warnings: tuple[str, ...] = field(default=())
    centre: Tensor | None = None

    def prepare(self, features: Tensor) -> Tensor:
        """Features as the means and factors describe them. Both of shape (samples, dim)."""
        if self.centre is None:
            return features
        return scale_to_unit_length(features, send(self.centre, features.device))

    def whiten(self, features: Tensor) -> Tensor:
        """Features minus the mean, in the space where the covariance of all classes is 1.

        Args:
            features: Features as they are, not prepared. Shape (samples, dim).

        Returns:
            Float64; squared distances to `whitened_means` are those to the classes.
            Shape (samples, rank).
        """
        return (self.prepare(features).double() - self.mean) @ self.within.whitening.T

    @cached_property
    def whitened_means(self) -> Tensor:
        """Class means in the space of `whiten`; NaN without samples. Shape (classes, rank)."""
        return (self.class_means - self.mean) @ self.within.whitening.T

    @property
    def matmul_dtype(self) -> torch.dtype:
        """The dtype of the matrix products that they were fitted with and are scored with."""
        return MATMUL_DTYPES[self.options.matmul_dtype]

    @property
    def samples_per_class(self) -> Tensor:
        """Number of samples (not rows) of each class. Shape (classes,)."""
        return self.moments.counts // self.options.runs

    @property
    def single_sample_classes(self) -> list[int]:
        """Indices of the classes of a single sample, which have no covariance."""
        return (self.samples_per_class == 1).nonzero().flatten().tolist()

    @property
    def reliable(self) -> bool:
        """Whether there were enough samples for the covariances, or they have a ridge."""
        return self.within.ridge > 0 or _spare_samples(self.moments, self.options.runs) >= 0


@one_thread_per_product()
def covariances(moments: Moments) -> tuple[Tensor, Tensor]:
    """Covariance within classes and covariance of all samples; both shape (dim, dim)."""
    mean = moments.class_sums.sum(dim=0) / moments.num_samples
    agnostic = moments.scatter - moments.num_samples * torch.outer(mean, mean)
    return covariance_within(moments), agnostic / moments.num_samples


@one_thread_per_product()
def covariance_within(moments: Moments) -> Tensor:
    """Covariance within classes, in one matrix of memory. Shape (dim, dim)."""
    roots = moments.counts.clamp(min=1).double().sqrt()
    within = torch.zeros_like(moments.scatter, memory_format=torch.contiguous_format)
    add_upper_gram(moments.class_sums / roots[:, None], within)
    torch.sub(moments.scatter, within, out=within)
    return mirror_upper(within.div_(moments.num_samples))


def mean_variance(moments: Moments) -> float:
    """Mean over the dimensions of the variance of all samples."""
    total = moments.class_sums.sum(dim=0)
    squares = float(moments.scatter.trace()) - float(total.square().sum()) / moments.num_samples
    return squares / moments.num_samples / moments.dim


@one_thread_per_product()
def fit_gaussians(
    moments: Moments,
    options: FitOptions,
    fourth_powers: FourthPowers | None = None,
    ridge: float = 0.0,
) -> Gaussians:
    """Fits class Gaussians with a shared covariance, and one Gaussian of all samples.

    Args:
        options: Shrinkage, and the dtype that the moments were computed in; never `auto`.
        fourth_powers: Only for `ledoit-wolf`; see `ledoit_wolf_intensity`.
        ridge: Variance to add to every direction, as a share of the mean variance of all samples; 0
            for none. Both covariances get the same, so that the total covariance stays the sum of
            the covariances within and between classes.
    """
    if moments.num_samples == 0:
        raise StatisticsError("no samples to fit Gaussians to")
    if options.matmul_dtype not in MATMUL_DTYPES:
        raise ValueError(f"{options.matmul_dtype!r} is not the dtype that moments are computed in")
    within, agnostic = covariances(moments)
    counts = moments.counts.double()[:, None]
    class_means = moments.pilot + moments.class_sums / counts
    if ridge > 0:
        variance = mean_variance(moments)
        factors = [factorise_with_ridge(each, ridge, variance) for each in (within, agnostic)]
    else:
        powers = fourth_powers or FourthPowers(float("nan"), float("nan"))
        factors = [
            factorise(covariance, options, moments.num_samples, power)
            for covariance, power in ((within, powers.within), (agnostic, powers.agnostic))
        ]
    factors = _with_roots(factors, (within, agnostic), moments.num_samples)
    return Gaussians(
        moments=moments,
        mean=moments.pilot + moments.class_sums.sum(dim=0) / moments.num_samples,
        class_means=class_means,
        within=factors[0],
        agnostic=factors[1],
        options=options,
        warnings=tuple(_warnings(moments, options, factors)),
    )


def _with_roots(
    factors: list[Factor], covariances: tuple[Tensor, Tensor], num_rows: int
) -> list[Factor]:
    """Factors with the roots of their covariances where both have one and no direction is lost."""
    roots = [low_rank_root(each, num_rows) for each in covariances]
    if any(
        root is None or factor.rank < root.shape[1]
        for root, factor in zip(roots, factors, strict=True)
    ):
        return factors
    return [replace(factor, root=root) for factor, root in zip(factors, roots, strict=True)]


def _spare_samples(moments: Moments, runs: int) -> int:
    """Number of samples beyond those that class means and a full-rank covariance need."""
    classes = int((moments.counts > 0).sum())
    return moments.num_samples // runs - classes - moments.dim


def _warnings(moments: Moments, options: FitOptions, factors: list[Factor]) -> list[str]:
    """Sentences about dropped directions and too few samples."""
    sentences = []
    spare = _spare_samples(moments, options.runs)
    ridge = factors[0].ridge
    if spare < 0 and not ridge:
        sentences.append(
            "these scores are unreliable: there are fewer samples than a feature vector has numbers"
        )
    elif spare < 9 * moments.dim and not ridge:
        sentences.append(
            f"there are only {(spare + moments.dim) / moments.dim:.1f} samples for each of the "
            f"{moments.dim} numbers of a feature vector (10 or more are better): prefer the column "
            "rmd_loo to rmd, which is too low for the samples of the fit"
        )
    for name, factor in zip(("within classes", "over all samples"), factors, strict=True):
        if factor.rank < moments.dim:
            sentences.append(
                f"{moments.dim - factor.rank} of {moments.dim} directions of the features hold "
                f"only rounding noise {name} and were dropped"
            )
    return sentences
