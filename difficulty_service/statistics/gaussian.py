"""Class means, the covariance all classes share, and the mean and covariance without labels.

Both covariances are divided by the number of samples (Cui et al. 2023, section 3.1), so that the
total one is the sum of the one within classes and the one between them. `auto` leaves a
well-conditioned covariance as it is; otherwise it drops directions in which there is only
rounding noise, and says how many. It never adds a ridge on its own.
"""

import math
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import scipy.linalg.lapack
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.errors import SingularCovariance, StatisticsError, TooFewSamples
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import matmul, one_thread_per_product
from difficulty_service.statistics.shrinkage import ledoit_wolf_intensity, oas_intensity, shrink

Shrinkage = Literal["auto", "none", "ledoit-wolf", "oas"] | float

WORST_CONDITION = {torch.float32: 1e8, torch.float64: 1e14}
"""Condition number beyond which `auto` drops directions, by the dtype of the products."""

NOISE_FLOOR = {torch.float32: 1e-6, torch.float64: 1e-10}
"""Eigenvalues below this share of the largest are rounding noise, by the dtype of the products."""


@dataclass(frozen=True)
class FourthPowers:
    """Mean fourth powers of the distances to the class mean and to the mean of all samples."""

    within: float
    agnostic: float


@dataclass(frozen=True)
class Factor:
    """A map under which a covariance becomes the identity, and how it was found.

    Attributes:
        whitening: Lower triangular where nothing was dropped. Shape (rank, dim).
        intensity: Share of the covariance that was replaced by its mean variance.
        condition: Condition number in the 1-norm of the unshrunk covariance.
    """

    whitening: Tensor
    intensity: float
    condition: float

    @property
    def rank(self) -> int:
        """Directions kept."""
        return len(self.whitening)

    @property
    def plain(self) -> bool:
        """Whether the covariance is neither shrunk nor cut to fewer directions."""
        return self.intensity == 0 and self.whitening.shape[0] == self.whitening.shape[1]


@dataclass(frozen=True)
class FitOptions:
    """How Gaussians are fitted.

    Attributes:
        shrinkage: `auto`, `none`, `ledoit-wolf`, `oas`, or an intensity in [0, 1].
        products: dtype of the products, which decides where rounding noise begins.
        runs: Feature rows per sample, one per augmentation run.
        force: Fit even where there are too few samples, and mark the result as unreliable.
    """

    shrinkage: Shrinkage = "auto"
    products: torch.dtype = torch.float32
    runs: int = 1
    force: bool = False


@dataclass(frozen=True)
class Gaussians:
    """Everything needed to score a sample, and to add more data. All float64, on the CPU.

    Attributes:
        moments: The sums they were fitted from.
        mean: Mean of all samples. Shape (dim,).
        class_means: NaN for a class without samples. Shape (classes, dim).
        within: Factor of the covariance that all classes share.
        agnostic: Factor of the covariance of all samples, labels ignored.
        options: How they were fitted.
        warnings: What a reader of the scores has to know, one sentence each.
    """

    moments: Moments
    mean: Tensor
    class_means: Tensor
    within: Factor
    agnostic: Factor
    options: FitOptions
    warnings: tuple[str, ...] = field(default=())

    @property
    def samples_per_class(self) -> Tensor:
        """Samples, not rows, of each class. Shape (classes,)."""
        return self.moments.counts // self.options.runs

    @property
    def reliable(self) -> bool:
        """Whether there were enough samples for a covariance of this many dimensions."""
        return _spare_samples(self.moments, self.options.runs) >= 0


@one_thread_per_product()
def covariances(moments: Moments) -> tuple[Tensor, Tensor]:
    """Covariance within classes and covariance of all samples; both shape (dim, dim)."""
    counts = moments.counts.clamp(min=1).double()
    class_means = moments.class_sums / counts[:, None]
    mean = moments.class_sums.sum(dim=0) / moments.num_samples
    within = moments.scatter - matmul((class_means * counts[:, None]).T, class_means)
    agnostic = moments.scatter - moments.num_samples * torch.outer(mean, mean)
    return (within + within.T) / (2 * moments.num_samples), agnostic / moments.num_samples


@one_thread_per_product()
def fit_gaussians(
    moments: Moments, options: FitOptions, fourth_powers: FourthPowers | None = None
) -> Gaussians:
    """Gaussians with a shared covariance per class, and one for all samples together.

    Args:
        moments: Of all samples.
        options: Shrinkage and the dtype the moments' products were made in.
        fourth_powers: Needed for `ledoit-wolf` only; a second pass over the features gives them.

    Raises:
        TooFewSamples: No more samples than dimensions and classes, without shrinkage.
        SingularCovariance: A covariance has no inverse and `none` was asked for.
    """
    if moments.num_samples == 0:
        raise StatisticsError("no samples to fit Gaussians to")
    _require_enough_samples(moments, options)
    within, agnostic = covariances(moments)
    counts = moments.counts.double()[:, None]
    class_means = moments.pilot + moments.class_sums / counts
    powers = fourth_powers or FourthPowers(float("nan"), float("nan"))
    factors = [
        factorise(covariance, options, moments.num_samples, power)
        for covariance, power in ((within, powers.within), (agnostic, powers.agnostic))
    ]
    return Gaussians(
        moments=moments,
        mean=moments.pilot + moments.class_sums.sum(dim=0) / moments.num_samples,
        class_means=class_means,
        within=factors[0],
        agnostic=factors[1],
        options=options,
        warnings=tuple(_warnings(moments, options, factors)),
    )


def factorise(
    covariance: Tensor, options: FitOptions, num_samples: int, mean_fourth_power: float
) -> Factor:
    """The whitening map of one covariance, by the rule the options name.

    Raises:
        SingularCovariance: It has no inverse and the rule allows no remedy.
    """
    scale_tril = _cholesky(covariance)
    condition = _condition(covariance, scale_tril)
    intensity = _intensity(covariance, options, num_samples, mean_fourth_power)
    if intensity > 0:
        scale_tril = _cholesky(shrink(covariance, intensity))
    if options.shrinkage == "auto" and condition > WORST_CONDITION[options.products]:
        return Factor(_truncated_whitening(covariance, options.products), 0.0, condition)
    if scale_tril is None:
        raise SingularCovariance(
            f"the covariance is singular (condition number {condition:.1e}) and shrinkage "
            f"{options.shrinkage!r} leaves it so; use --shrinkage auto or ledoit-wolf"
        )
    inverse, _ = scipy.linalg.lapack.dtrtri(scale_tril, lower=1)
    return Factor(torch.from_numpy(np.tril(inverse)), intensity, condition)


@one_thread_per_product()
def condition_number(covariance: Tensor) -> float:
    """LAPACK's estimate of the condition number in the 1-norm; infinite where not definite."""
    return _condition(covariance, _cholesky(covariance))


def squared_mahalanobis(features: Tensor, mean: Tensor, whitening: Tensor) -> Tensor:
    """Squared distance to a mean, in units of the covariance the map makes the identity.

    Args:
        features: Shape (samples, dim).
        mean: One for all, (dim,), or one each, (samples, dim).
        whitening: Shape (rank, dim).

    Returns:
        Unitless, zero or more. Shape (samples,).
    """
    return ((features - mean) @ whitening.T).square().sum(dim=1)


def _cholesky(covariance: Tensor) -> NDArray[np.float64] | None:
    """Lower triangular factor, or None where the covariance is not positive definite."""
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
    if options.shrinkage in ("auto", "none"):
        return 0.0
    if options.shrinkage == "oas":
        return oas_intensity(covariance, num_samples)
    if options.shrinkage == "ledoit-wolf":
        if math.isnan(mean_fourth_power):
            raise StatisticsError("ledoit-wolf needs the fourth powers of a second pass")
        return ledoit_wolf_intensity(covariance, num_samples, mean_fourth_power)
    intensity = float(options.shrinkage)
    if not 0 <= intensity <= 1:
        raise StatisticsError(f"shrinkage {intensity} is outside 0 to 1")
    return intensity


def _truncated_whitening(covariance: Tensor, products: torch.dtype) -> Tensor:
    """Whitens the directions above the noise floor only; shape (rank, dim)."""
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    kept = eigenvalues > NOISE_FLOOR[products] * eigenvalues[-1]
    if not kept.any():
        raise StatisticsError("all features are the same, so there is nothing to measure by")
    return eigenvectors[:, kept].T / eigenvalues[kept, None].sqrt()


def _spare_samples(moments: Moments, runs: int) -> int:
    """Samples beyond those that class means and a full-rank covariance use up."""
    classes = int((moments.counts > 0).sum())
    return moments.num_samples // runs - classes - moments.dim


def _require_enough_samples(moments: Moments, options: FitOptions) -> None:
    shrunk = options.shrinkage not in ("auto", "none") and options.shrinkage != 0
    if shrunk or options.force or _spare_samples(moments, options.runs) >= 0:
        return
    classes = int((moments.counts > 0).sum())
    raise TooFewSamples(
        f"{moments.num_samples // options.runs} samples of {classes} classes are too few for "
        f"features of {moments.dim} dimensions: at least {moments.dim + classes} are needed, "
        f"{10 * moments.dim + classes} are better; use --shrinkage ledoit-wolf, a backbone with "
        "fewer features, or --force for scores marked as unreliable"
    )


def _warnings(moments: Moments, options: FitOptions, factors: list[Factor]) -> list[str]:
    """Sentences about small classes, dropped directions and too few samples."""
    sentences = []
    spare = _spare_samples(moments, options.runs)
    if spare < 0:
        sentences.append("fewer samples than dimensions: these scores are unreliable")
    elif spare < 9 * moments.dim:
        sentences.append(
            f"only {(spare + moments.dim) / moments.dim:.1f} samples per feature dimension (10 or "
            "more are better): prefer rmd_loo to rmd, which is too low for the samples fitted on"
        )
    samples = moments.counts // options.runs
    singletons = (samples == 1).nonzero().flatten().tolist()
    if singletons:
        sentences.append(
            f"{len(singletons)} classes have a single sample, which gets no score of its own "
            f"class: labels {singletons[:5]}"
        )
    for name, factor in zip(("within classes", "of all samples"), factors, strict=True):
        if factor.rank < moments.dim:
            sentences.append(
                f"the covariance {name} is singular to rounding (condition number "
                f"{factor.condition:.1e}): {moments.dim - factor.rank} of {moments.dim} "
                "directions hold only rounding noise and were left out"
            )
    return sentences
