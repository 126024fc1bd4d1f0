"""Class means, the covariance all classes share, and the mean and covariance without labels.

Both covariances are divided by the number of samples (Cui et al. 2023, section 3.1), so that the
total one is the sum of the one within classes and the one between them. `auto` leaves a
well-conditioned covariance as it is; otherwise it drops directions in which there is only
rounding noise, and says how many. It never adds a ridge on its own.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from difficulty_service.errors import StatisticsError, TooFewSamples
from difficulty_service.statistics.factor import Factor, factorise
from difficulty_service.statistics.fit_options import MATMUL_DTYPES, FitOptions
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import matmul, one_thread_per_product


@dataclass(frozen=True)
class FourthPowers:
    """Mean fourth powers of the distances to the class mean and to the mean of all samples."""

    within: float
    agnostic: float


@dataclass(frozen=True)
class Gaussians:
    """Everything needed to score a sample, and to add more data. All float64, on the CPU.

    Attributes:
        moments: The sums they were fitted from.
        mean: Mean of all samples. Shape (dim,).
        class_means: NaN for a class without samples. Shape (classes, dim).
        within: Factor of the covariance that all classes share.
        agnostic: Factor of the covariance of all samples, labels ignored.
        options: How they were fitted, with the dtype that was used in place of `auto`.
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
    def matmul_dtype(self) -> torch.dtype:
        """The dtype of the matrix products that they were fitted with and are scored with."""
        return MATMUL_DTYPES[self.options.matmul_dtype]

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
        options: Shrinkage, and the dtype that the moments were computed in; never `auto`.
        fourth_powers: Needed for `ledoit-wolf` only; a second pass over the features gives them.

    Raises:
        TooFewSamples: No more samples than dimensions and classes, without shrinkage.
        SingularCovariance: A covariance has no inverse and `none` was asked for.
    """
    if moments.num_samples == 0:
        raise StatisticsError("no samples to fit Gaussians to")
    if options.matmul_dtype not in MATMUL_DTYPES:
        raise ValueError(f"the moments were computed in a dtype, not in {options.matmul_dtype!r}")
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
