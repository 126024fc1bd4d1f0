"""How much to add to the diagonal of a covariance, chosen by leave-one-out likelihood.

With fewer than some fifty samples per dimension the sample covariance tells little about the
directions in which it is small, and a distance divides by just those. The intensities of Ledoit
and Wolf and of OAS minimise the squared error of the covariance, which is shrunk far too little
for telling classes apart. What is chosen here is the ridge under which the labels of samples
that were left out of the fit are most probable; the labels given are the only evidence.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import scipy.linalg
import torch
from torch import Tensor

from difficulty_service.base.process_setup import give_back_freed_memory
from difficulty_service.gaussians.class_distances import (
    LeftOutSample,
    class_distances_left_out,
    class_geometry,
    distances_of_rows_left_out,
)
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.gaussian import covariance_within, mean_variance
from difficulty_service.gaussians.label_noise import log_class_prior
from difficulty_service.gaussians.moments import Moments
from difficulty_service.gaussians.products import (
    BLOCK_ROWS,
    Workspace,
    logsumexp,
    matmul,
    one_thread_per_product,
    row_ranges,
)
from difficulty_service.gaussians.roots import falling_root

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

ACCURACY_OF_SCALE = 1e-9
"""Of that logarithm; the scale hardly differs between ways to sum the same moments."""

DISTANCES_AT_ONCE = 1 << 18
"""Approximate number of distances that are computed at a time, in several copies."""

SAME_LIKELIHOOD = 1e-10
"""Difference in nats that does not count: of labels that any ridge explains, rounding decides."""

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
        features: Rows of the same sample follow each other. Shape (samples * runs, dim).
        labels: Class of each sample. Shape (samples,).
    """

    features: Tensor
    labels: Tensor
    runs: int = 1


def needs_ridge(moments: Moments, options: FitOptions) -> bool:
    """Whether the covariance gets a ridge, such as where there are too few samples without one."""
    few = moments.num_samples // options.runs < ENOUGH_SAMPLES * moments.dim
    return options.takes_ridge(few=few)


@one_thread_per_product()
def choose_ridge(sample: LabelledRows, moments: Moments) -> float:
    """The one of RIDGES with the largest leave-one-out likelihood of the labels.

    Of the samples, from all over the dataset, those alone in their class do not count. The largest
    of RIDGES where no sample has another one of its class, or there is one class only.
    """
    likelihood_of = _RidgeSearch(sample, moments)
    return _best(map(likelihood_of, RIDGES)).ridge


@one_thread_per_product()
def likeliest_ridge(sample: LabelledRows, moments: Moments) -> RidgeChoice:
    """Like `choose_ridge`, with the scale, and beyond the ends of RIDGES if the best one is there.

    Within FARTHEST_RIDGES; the largest of RIDGES at scale 1 where there is nothing to compare.
    """
    likelihood_of = _RidgeSearch(sample, moments)
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
    """The largest ridge with the largest likelihood; the largest of RIDGES where none has any."""
    known = [each for each in choices if not math.isnan(each.likelihood)]
    if not known:
        return RidgeChoice(RIDGES[-1], 1.0, math.nan)
    largest = max(each.likelihood for each in known)
    equal = (each for each in known if each.likelihood >= largest - SAME_LIKELIHOOD)
    return max(equal, key=lambda each: each.ridge)


class _RidgeSearch:
    """Gives the likelihood under each ridge, with memory that all of them share."""

    def __init__(self, sample: LabelledRows, moments: Moments) -> None:
        fitted = (moments.counts > 0).nonzero().flatten()
        sample = _usable(sample, moments.counts, len(fitted))
        self._comparable = len(fitted) > 1 and len(sample.labels) > 0
        if not self._comparable:
            return
        self._runs, self._counts = sample.runs, moments.counts[fitted]
        self._log_prior = log_class_prior(self._counts // sample.runs)
        # Classes without samples have no place among the distances.
        self._labels = torch.searchsorted(fitted, sample.labels)
        self._variance = mean_variance(moments)
        variances, axes = scipy.linalg.eigh(
            # The order that LAPACK overwrites without a copy, by the routine of least memory.
            covariance_within(moments).numpy().T,
            overwrite_a=True,
            check_finite=False,
            driver="evr",
        )
        self._variances, directions = torch.from_numpy(variances), torch.from_numpy(axes)
        # What rounding made negative tells how far off the other variances may be.
        self._noise = max(0.0, -float(self._variances[0]))
        self._class_points = moments.class_sums[fitted] / self._counts[:, None] @ directions
        self._points = torch.empty_like(sample.features)
        for rows in row_ranges(len(self._points), BLOCK_ROWS):
            self._points[rows] = (sample.features[rows] - moments.pilot) @ directions
        give_back_freed_memory()
        self._distances = self._points.new_empty(len(self._points), len(fitted))
        self._work = Workspace()
        self._last_scale = 1.0

    def __call__(self, ridge: float) -> RidgeChoice:
        """The likelihood: NaN where the ridge is too small or there is nothing to compare."""
        nothing = RidgeChoice(ridge, 1.0, math.nan)
        if not self._comparable or ridge * self._variance < ABOVE_NOISE * self._noise:
            return nothing
        scale = (self._variances.clamp(min=0) + ridge * self._variance).rsqrt()
        first = 0
        for left_out in self._in_blocks(scale):
            if left_out.leverage.max() > LARGEST_LEVERAGE:
                return nothing
            self._distances[first : first + len(left_out.distances)] = left_out.distances
            first += len(left_out.distances)
        labels = self._labels.repeat_interleave(self._runs)
        found = label_likelihood(self._distances, labels, self._log_prior, self._last_scale)
        self._last_scale = found[0]  # near that of the next ridge
        return RidgeChoice(ridge, *found)

    def _in_blocks(self, scale: Tensor) -> Iterator[LeftOutSample]:
        """Distances of some samples at a time, by a factor for each direction."""
        runs, dtype = self._runs, self._points.dtype
        class_points = self._class_points * scale
        geometry = class_geometry(class_points, self._counts, dtype) if runs == 1 else None
        weighted = class_points.mul_(scale).mul_(-2).to(dtype) if runs == 1 else class_points
        squares = scale.square().to(dtype)
        most = max(1, DISTANCES_AT_ONCE // (len(self._counts) * runs**2))
        for block in row_ranges(len(self._labels), min(most, BLOCK_ROWS)):
            points, labels = (
                self._points[block.start * runs : block.stop * runs],
                self._labels[block],
            )
            if geometry is None:
                yield class_distances_left_out(
                    points * scale, labels, class_points, self._counts, runs
                )
                continue
            products = self._work.matrix("products", len(points), len(self._counts), points)
            matmul(points, weighted.T, out=products)
            lengths = points.square() @ squares
            yield distances_of_rows_left_out(lengths, products, labels, geometry, self._work)


def label_likelihood(
    distances: Tensor, labels: Tensor, log_prior: Tensor, near: float = 1.0
) -> tuple[float, float]:
    """Mean log-probability of the labels, at the scale of the distances that makes it largest.

    Only the order of ridges is at stake: a small ridge makes all distances large, which alone would
    make every class but the nearest improbable. From squared distances (rows, classes), labels
    (rows,) and log-priors (classes,); returns the scale, and the mean in nats, zero or less. The
    search begins at the scale `near`; the loss is convex. Where any scale explains the labels of
    classes far apart, it ends at the first of them.
    """
    prior = log_prior.to(distances.dtype)
    own = distances.gather(1, labels[:, None]).mean(dtype=torch.float64)
    work = Workspace()

    def posteriors(log_scale: float) -> Iterator[tuple[Tensor, Tensor]]:
        for block in distances.split(max(1, DISTANCES_AT_ONCE // len(prior))):
            logits = work.like("logits", block)
            yield block, torch.add(prior, block, alpha=-math.exp(log_scale) / 2, out=logits)

    def slopes(log_scale: float) -> tuple[float, float]:
        """Minus twice the derivative of the loss by the scale, and its own by the logarithm."""
        expected = variance = 0.0
        for block, logits in posteriors(log_scale):
            weighted = logits.softmax(dim=1).mul_(block)
            mean = weighted.sum(dim=1, dtype=torch.float64)
            expected += float(mean.sum())
            squares = weighted.mul_(block).sum(dtype=torch.float64)
            variance += float(squares - mean.square().sum())
        nats = math.exp(log_scale) / 2
        rises = expected / len(distances) - float(own)
        falls = -nats * variance / len(distances)
        is_flat = nats * max(abs(rises), abs(falls)) < SAME_LIKELIHOOD
        return (0.0, 0.0) if is_flat else (rises, falls)

    best = falling_root(slopes, BOUNDS_OF_SCALE, math.log(near), ACCURACY_OF_SCALE)
    evidence = sum(
        float(logsumexp(logits).sum(dtype=torch.float64)) for _, logits in posteriors(best)
    )
    mean_prior = float(prior[labels].mean(dtype=torch.float64))
    likelihood = mean_prior - math.exp(best) * float(own) / 2 - evidence / len(distances)
    return math.exp(best), likelihood


def _usable(sample: LabelledRows, counts: Tensor, num_classes: int) -> LabelledRows:
    """Samples that are not alone in their class, evenly thinned to a number that is affordable."""
    kept = (counts[sample.labels] > sample.runs).nonzero().flatten()
    dim = sample.features.shape[1]
    most = min(MOST_SAMPLES, int(MOST_PRODUCTS / (dim * num_classes * sample.runs)))
    kept = kept[:: max(1, -(-len(kept) // max(most, 1)))]
    rows = sample.features.view(len(sample.labels), sample.runs, dim)[kept]
    return LabelledRows(rows.flatten(0, 1), sample.labels[kept], sample.runs)
