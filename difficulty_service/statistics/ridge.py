"""How much to add to the diagonal of a covariance, chosen by leave-one-out likelihood.

With fewer than some fifty samples per dimension the sample covariance tells little about the
directions in which it is small, and a distance divides by just those. The intensities of Ledoit
and Wolf and of OAS minimise the squared error of the covariance, which is far too little shrinkage
for telling classes apart. What is chosen here is the ridge under which the labels of samples
that were left out of the fit are most probable; the labels given are the only evidence.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import scipy.optimize
import torch
from torch import Tensor
from torch.nn import functional

from difficulty_service.statistics.class_distances import (
    class_distances_left_out,
    class_geometry,
    distances_of_rows_left_out,
)
from difficulty_service.statistics.gaussian import covariances
from difficulty_service.statistics.moments import Moments
from difficulty_service.statistics.products import one_thread_per_product

MOST_SAMPLES = 5000
"""Samples whose likelihood is computed: enough to tell one ridge from the next."""

MOST_PRODUCTS = 4e9
"""Multiplications for one ridge, which bounds the samples where classes and dimensions are many."""

ENOUGH_SAMPLES = 50
"""Samples per dimension from which on `auto` adds no ridge."""

RIDGES = tuple(10.0 ** (half / 2) for half in range(-8, 5))
"""From 1e-4 to 100, two a decade, as shares of the mean variance."""

LARGEST_LEVERAGE = 0.99
"""A ridge is too small where removing one sample takes so much of the variance along it."""

ABOVE_NOISE = 10
"""Multiple of the rounding noise of the variances that a ridge must have."""

BOUNDS_OF_SCALE = (-12.0, 4.0)
"""Natural logarithm of the factor on the distances that is best for the likelihood."""


FARTHEST_RIDGES = (1e-6, 1e4)
"""Ends of the ridges that are tried where the likelihood still grows at an end of RIDGES."""


@dataclass(frozen=True)
class RidgeChoice:
    """A ridge, and the scale of the distances under which labels are most probable with it.

    Attributes:
        ridge: Share of the mean variance of all samples to add to every direction.
        scale: Factor on the squared distances.
        likelihood: Mean log-probability of the labels left out, in nats; NaN where there was
            nothing to compare.
    """

    ridge: float
    scale: float
    likelihood: float


@dataclass(frozen=True)
class LabelledRows:
    """Some samples of a dataset with all their augmentation runs.

    Attributes:
        features: Rows of the same sample follow each other, float64. Shape (samples * runs, dim).
        labels: Class of each sample. Shape (samples,).
        runs: Rows per sample.
    """

    features: Tensor
    labels: Tensor
    runs: int = 1


def needs_ridge(moments: Moments, runs: int) -> bool:
    """Whether there are too few samples, of `runs` rows each, for the covariance as it is."""
    return moments.num_samples // runs < ENOUGH_SAMPLES * moments.dim


@one_thread_per_product()
def choose_ridge(sample: LabelledRows, moments: Moments) -> float:
    """The ridge with the largest leave-one-out likelihood of the labels.

    Args:
        sample: Samples from all over the dataset; those alone in their class do not count.
        moments: Moments of all samples.

    Returns:
        One of RIDGES. The largest of them where no sample has another one of its class, or there
        is one class only.
    """
    likelihood_of = _likelihood_of_ridge(sample, moments)
    return _best(map(likelihood_of, RIDGES)).ridge


@one_thread_per_product()
def likeliest_ridge(sample: LabelledRows, moments: Moments) -> RidgeChoice:
    """Like `choose_ridge`, with the scale, and beyond the ends of RIDGES if the best one is there.

    Args:
        sample: As for `choose_ridge`.
        moments: As for `choose_ridge`.

    Returns:
        A ridge within FARTHEST_RIDGES. The largest of RIDGES with the scale 1 where `choose_ridge`
        has nothing to compare.
    """
    likelihood_of = _likelihood_of_ridge(sample, moments)
    best = _best(map(likelihood_of, RIDGES))
    if math.isnan(best.likelihood):
        return best
    step = RIDGES[1] / RIDGES[0]
    for end, factor in ((RIDGES[0], 1 / step), (RIDGES[-1], step)):
        ridge = end
        while best.ridge == ridge:
            ridge *= factor
            if FARTHEST_RIDGES[0] * 0.99 <= ridge <= FARTHEST_RIDGES[1] * 1.01:
                best = _best([best, likelihood_of(ridge)])
    return best


def _best(choices: Iterable[RidgeChoice]) -> RidgeChoice:
    """The choice with the largest likelihood; the largest of RIDGES where none has any."""
    known = [each for each in choices if not math.isnan(each.likelihood)]
    fallback = RidgeChoice(RIDGES[-1], 1.0, math.nan)
    return max(known, key=lambda each: each.likelihood, default=fallback)


def _likelihood_of_ridge(sample: LabelledRows, moments: Moments) -> Callable[[float], RidgeChoice]:
    """What gives the likelihood under a ridge: NaN where it is too small or nothing to compare."""
    counts = moments.counts
    fitted = (counts > 0).nonzero().flatten()
    sample = _usable(sample, counts, len(fitted))
    if len(fitted) < 2 or not len(sample.labels):  # noqa: PLR2004
        return lambda ridge: RidgeChoice(ridge, 1.0, math.nan)
    within, agnostic = covariances(moments)
    variance = float(agnostic.trace()) / moments.dim
    variances, directions = torch.linalg.eigh(within)
    points = (sample.features - moments.pilot) @ directions
    class_points = moments.class_sums[fitted] / counts[fitted, None] @ directions
    squares = points.square() if sample.runs == 1 else points
    # Classes without samples have no place among the distances.
    labels, counts = torch.searchsorted(fitted, sample.labels), counts[fitted]
    rows = labels.repeat_interleave(sample.runs)

    # What rounding made negative tells how far off the other variances may be.
    noise = max(0.0, -float(variances[0]))

    def likelihood_of(ridge: float) -> RidgeChoice:
        if ridge * variance < ABOVE_NOISE * noise:
            return RidgeChoice(ridge, 1.0, math.nan)
        scale = (variances.clamp(min=0) + ridge * variance).rsqrt()
        if sample.runs == 1:
            left_out = distances_of_rows_left_out(
                squares @ scale.square(),
                points @ (class_points * scale.square()).T,
                labels,
                class_geometry(class_points * scale, counts),
            )
        else:
            left_out = class_distances_left_out(
                points * scale, labels, class_points * scale, counts, sample.runs
            )
        if left_out.leverage.max() > LARGEST_LEVERAGE:
            return RidgeChoice(ridge, 1.0, math.nan)
        return RidgeChoice(ridge, *label_likelihood(left_out.distances, rows, counts))

    return likelihood_of


def label_likelihood(distances: Tensor, labels: Tensor, counts: Tensor) -> tuple[float, float]:
    """Mean log-probability of the labels, at the scale of the distances that makes it largest.

    Only the order of ridges is at stake: a small ridge makes all distances large, which alone
    would make every class but the nearest improbable.

    Args:
        distances: Squared distances to each class. Shape (rows, classes).
        labels: Shape (rows,).
        counts: Rows of each class, in proportion to its prior probability. Shape (classes,).

    Returns:
        The scale, and the mean log-probability in nats; zero or less.
    """
    prior = (counts / counts.sum()).log()

    def loss(log_scale: float) -> float:
        logits = prior - math.exp(log_scale) * distances / 2
        return float(functional.cross_entropy(logits, labels))

    # The loss is convex in the scale.
    found = scipy.optimize.minimize_scalar(
        loss, bounds=BOUNDS_OF_SCALE, method="bounded", options={"xatol": 0.02}
    )
    return math.exp(found.x), -float(found.fun)


def _usable(sample: LabelledRows, counts: Tensor, num_classes: int) -> LabelledRows:
    """Samples that are not alone in their class, evenly thinned to a number that is affordable."""
    kept = (counts[sample.labels] > sample.runs).nonzero().flatten()
    dim = sample.features.shape[1]
    most = min(MOST_SAMPLES, int(MOST_PRODUCTS / (dim * num_classes * sample.runs)))
    kept = kept[:: max(1, -(-len(kept) // max(most, 1)))]
    rows = sample.features.view(len(sample.labels), sample.runs, dim)[kept]
    return LabelledRows(rows.flatten(0, 1), sample.labels[kept], sample.runs)
