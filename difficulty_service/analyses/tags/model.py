"""Which tags of samples are wrong or missing, by Gaussians of the features and the tags together.

A sample has any number of tags. Features and tags, as numbers 0 and 1, have one covariance; what
it says of one tag, given the features and all other tags of a sample, compares the Gaussians of
the samples with and without the tag. Each sample is left out of the fit. `docs/tags.md` has the
derivation.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Generic

import scipy.optimize
import torch
from torch import Tensor
from torch.nn import functional as F

from difficulty_service.analyses.tags.tag_errors import SMALLEST, TagErrors, fit_errors
from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.batches import Batch, BatchSource, with_labels
from difficulty_service.gaussians.factor import whiten_with_ridge
from difficulty_service.gaussians.feature_map import FeatureMap, make_feature_map
from difficulty_service.gaussians.gaussian import covariance_within
from difficulty_service.gaussians.label_noise import FEWEST
from difficulty_service.gaussians.moments import Moments, accumulate_moments, pilot_of
from difficulty_service.gaussians.products import (
    BLOCK_ROWS,
    Projection,
    Workspace,
    matmul,
    one_thread_per_product,
    projection,
    row_ranges,
    squared_lengths,
)
from difficulty_service.gaussians.ridge import LARGEST_LEVERAGE, MOST_SAMPLES, RIDGES
from difficulty_service.gaussians.row_sample import choose_samples, count_rows, read_samples

LANDMARKS, SAMPLES_PER_LANDMARK = 1024, 4
"""As for `suspicion`: landmarks at most, and samples for each of them."""

MOST_TAGS = 5000
"""A matrix of all pairs of tags is inverted."""

MOST_PAIRS = 1 << 20
"""Samples times tags that the numbers of the fit are chosen by."""

TAG_RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
"""Shares of its variance that are added to that of each tag: the larger, the less a tag tells of
the others."""

BOUNDS_OF_SCALE = (-8.0, 3.0)
"""Natural logarithm of the factor on the log-odds."""


@dataclass(frozen=True)
class GivenTags:
    """The tags that samples have, without those that they do not have.

    Attributes:
        starts: Place of the first tag of each sample, and the number of all. Shape (samples + 1,).
        tags: Tags by their index, those of a sample adjacent and each once. Shape (given,).
    """

    starts: Tensor
    tags: Tensor
    num_tags: int

    @property
    def num_samples(self) -> int:
        """Number of samples, also of those without a tag."""
        return len(self.starts) - 1

    def has(self, samples: Tensor) -> Tensor:
        """Which tags some samples have, by their numbers. Bool, shape (samples, tags)."""
        first, numbers = self.starts[samples], self.starts[samples + 1] - self.starts[samples]
        rows = torch.repeat_interleave(torch.arange(len(samples)), numbers)
        within = torch.arange(len(rows)) - torch.repeat_interleave(
            numbers.cumsum(0) - numbers, numbers
        )
        places = torch.repeat_interleave(first, numbers) + within
        found = torch.zeros(len(samples), self.num_tags, dtype=torch.bool)
        found[rows, self.tags[places]] = True
        return found

    def counts(self) -> Tensor:
        """Number of samples with each tag. Shape (tags,)."""
        return self.tags.bincount(minlength=self.num_tags)


@dataclass(frozen=True)
class TaggedBatches(Generic[Batch]):
    """Mapped features with the tags behind them, of one class, in the batches of another source.

    Attributes:
        source: Features whose labels are the numbers of the samples.
        fitted: Indices of the tags to append.
    """

    source: BatchSource[Batch]
    feature_map: FeatureMap
    given: GivenTags
    fitted: Tensor

    @property
    def device(self) -> torch.device:
        """Device of the features."""
        return self.source.device

    def batches(self) -> Iterator[Batch]:
        """Where each batch is, in the order of the samples."""
        return iter(self.source.batches())

    def read(self, batch: Batch, work: Workspace) -> tuple[Tensor, Iterator[Tensor]]:
        """Reads a batch; all labels are 0."""
        numbers, blocks = self.source.read(batch, work)
        joined = (self.join(block, rows, work) for block, rows in with_labels(numbers, blocks))
        return torch.zeros_like(numbers), joined

    def join(self, features: Tensor, numbers: Tensor, work: Workspace) -> Tensor:
        """Mapped features and tags of some samples. Shape (samples, mapped dim + fitted)."""
        mapped = self.feature_map(features, work)
        has = self.given.has(numbers.long())[:, self.fitted]
        return torch.cat([mapped, has.to(mapped.dtype)], dim=1)


@dataclass(frozen=True)
class JudgedTags:
    """What is thought of the tags of some samples. Each float64 of shape (samples, fitted).

    Attributes:
        has: Whether each tag is given, bool.
        suspicion: Log-odds that this is wrong.
        margin: Twice the log-odds, without what is known of errors, that it should be the other way
            round; above 0 where that is likelier.
        rmd: Squared distance to the samples alike in this tag minus that to all samples.
    """

    has: Tensor
    suspicion: Tensor
    margin: Tensor
    rmd: Tensor


@dataclass(frozen=True)
class TagFit:
    """The numbers that the tags chose.

    Attributes:
        ridge: Share of the mean variance of the features that is added to every direction.
        tag_ridge: Share of its variance that is added to that of each tag.
        scale: Factor on the log-odds of the Gaussians.
        likelihood: Mean log-probability of a decision left out, in nats.
        landmarks: Number of landmarks.
    """

    ridge: float
    tag_ridge: float
    scale: float
    likelihood: float
    landmarks: int


@dataclass(frozen=True)
class TagRule:
    """Judges the tags of the samples of the fit; made by `fit_tags`.

    Attributes:
        fitted: Indices of the tags that at least FEWEST samples have and FEWEST have not.
        whitening: Map to the space where the covariance of the mapped features and its ridge are 1.
        regression: What each direction there adds to each tag. Shape (dim, fitted).
        geometry: Covariance of what is left of the tags then.
    """

    joined: TaggedBatches[object]
    mean: Tensor
    whitening: Projection
    regression: Tensor
    geometry: "_Left"
    fit: TagFit
    errors: TagErrors
    work: Workspace = field(default_factory=Workspace)

    @property
    def fitted(self) -> Tensor:
        """Indices of the tags that are judged."""
        return self.joined.fitted

    def judge(self, features: Tensor, numbers: Tensor) -> Iterator[tuple[slice, JudgedTags]]:
        """Some samples at a time; features (samples, dim) are as they are, numbers (samples,)."""
        most = max(1, min(BLOCK_ROWS, MOST_PAIRS // max(1, len(self.fitted))))
        for rows in row_ranges(len(numbers), most):
            yield rows, self._judge(features[rows], numbers[rows])

    def _judge(self, features: Tensor, numbers: Tensor) -> JudgedTags:
        joined = self.joined.join(features, numbers, self.work).sub_(self.mean)
        dim = len(self.regression)
        mapped = joined[:, :dim].contiguous()
        points = self.work.matrix("whitened", len(joined), self.whitening.rank, joined)
        self.whitening.apply(mapped, points)
        left = joined[:, dim:].double() - matmul(points, self.regression).double()
        has = self.joined.given.has(numbers.long())[:, self.fitted]
        found = self.geometry.left_out(left, squared_lengths(points).double(), has)
        evidence = self.fit.scale * found.log_odds + self.geometry.log_prior(has)
        suspicion = self.errors.log_odds_of_error(evidence, has, self.geometry.shares)
        odds = self.errors.log_odds(evidence)
        return JudgedTags(has, suspicion, torch.where(has, -2 * odds, 2 * odds), found.rmd)


@dataclass(frozen=True)
class _LeftOut:
    """Log-odds of with against without, `rmd`, both (samples, tags), and leverage, (samples,)."""

    log_odds: Tensor
    rmd: Tensor
    leverage: Tensor


@dataclass(frozen=True)
class _Left:
    """What is left of the tags where the features have said what they can.

    Attributes:
        num_samples: Number of samples of the fit.
        shares: Share of them with each tag. Shape (tags,), as of the one that follows.
        inverse: Inverse of the covariance of what is left, with its ridge. Shape (tags, tags).
        tag_ridge: As in `TagFit`.
    """

    num_samples: int
    shares: Tensor
    inverse: Tensor
    tag_ridge: float

    def log_prior(self, has: Tensor) -> Tensor:
        """Log-odds of each tag by the other samples. Shape as given, (samples, tags)."""
        number = self.num_samples
        share = (self.shares * number - has.double()) / (number - 1)
        return share.clamp(SMALLEST, 1 - SMALLEST).logit()

    def left_out(self, left: Tensor, lengths: Tensor, has: Tensor) -> _LeftOut:
        """Compares with and without each tag, as if the sample had not taken part in the fit.

        Args:
            left: Tags minus what features say of them. Shape (samples, tags).
            lengths: Squared lengths of the whitened features. Shape (samples,).
            has: Whether each tag is given. Shape (samples, tags).
        """
        number = self.num_samples
        variance = self.shares * (1 - self.shares)
        weighted = left @ self.inverse
        own = self.inverse.diagonal()
        leverage = (lengths + (weighted * left).sum(dim=1)) / (number - 1)
        kept = (1 - leverage).clamp(min=1 - LARGEST_LEVERAGE)[:, None]
        grown = number / (number - 1)
        # What features and the other tags do not say of a tag; by Sherman and Morrison.
        rest = grown * weighted / kept / (own + weighted.square() / kept / (number - 1))
        said = grown * (has.double() - self.shares) - rest
        unsaid = (1 / own - self.tag_ridge * variance).clamp(min=SMALLEST)
        share_said = (1 - unsaid / variance).clamp(SMALLEST, 1)
        log_odds = said / unsaid - (1 - 2 * self.shares) / 2 * share_said / unsaid
        within = share_said * unsaid
        centre = share_said * (has.double() - self.shares)
        total = within + variance * share_said.square()
        rmd = (said - centre).square() / within - said.square() / total
        return _LeftOut(log_odds, rmd, leverage)


@one_thread_per_product()
def fit_tags(
    source: BatchSource[Batch], given: GivenTags, seed: int, matmul_dtype: torch.dtype
) -> TagRule:
    """Fits the Gaussians of features and tags in one pass, after some samples chosen by a seed.

    Args:
        source: Features, one row for each sample, whose labels are their numbers in `given`.

    Raises:
        StatisticsError: There are too few samples, no tag that some have and others have not, too
            many tags, or all features are the same.
    """
    counts = given.counts()
    fitted = ((counts >= FEWEST) & (counts <= given.num_samples - FEWEST)).nonzero().flatten()
    if not len(fitted):
        raise StatisticsError(
            f"no tag is given to at least {FEWEST} of {given.num_samples:,} samples and missing at "
            f"{FEWEST} others",
            "check how the tags are written, and whether the ids match",
        )
    if len(fitted) > MOST_TAGS:
        raise StatisticsError(
            f"{len(fitted):,} tags are more than {MOST_TAGS:,}", "leave out the rare ones"
        )
    rows = count_rows(source)
    chosen = choose_samples(sum(rows), MOST_SAMPLES, seed)
    sample = read_samples(source, rows, chosen, 1)
    landmarks = min(LANDMARKS, len(sample.labels) // SAMPLES_PER_LANDMARK)
    feature_map = make_feature_map(
        sample.features, landmarks, torch.Generator().manual_seed(seed), matmul_dtype
    )
    joined = TaggedBatches(source, feature_map, given, fitted)
    work, blocks = Workspace(), row_ranges(len(sample.labels), BLOCK_ROWS)
    points = torch.cat(
        [joined.join(sample.features[block], sample.labels[block], work) for block in blocks]
    )
    moments = accumulate_moments(joined, pilot_of(points), 1, matmul_dtype=matmul_dtype)
    has = given.has(sample.labels)[:, fitted]
    step = max(1, -(-has.numel() // MOST_PAIRS))
    search = _TagSearch(moments, points[::step], has[::step])
    fit, evidence = search.likeliest()
    errors = fit_errors(evidence, search.has, search.shares)
    return make_rule(joined, moments, TagFit(*fit, landmarks), errors, matmul_dtype)


def make_rule(
    joined: TaggedBatches[Batch],
    moments: Moments,
    fit: TagFit,
    errors: TagErrors,
    matmul_dtype: torch.dtype,
) -> TagRule:
    """The rule with the moments of mapped features and tags, and with given numbers."""
    dim = joined.feature_map.dim
    covariance = covariance_within(moments)
    tags, cross = covariance[dim:, dim:].clone(), covariance[:dim, dim:].clone()
    features = covariance[:dim, :dim].contiguous()
    whitening = whiten_with_ridge(features, fit.ridge, float(features.diagonal().mean()))
    mean = moments.pilot + moments.class_sums[0] / moments.num_samples
    regression = whitening @ cross
    left = tags - regression.T @ regression
    return TagRule(
        joined=joined,  # type: ignore[arg-type]  # what batches are does not matter here
        mean=mean.to(matmul_dtype),
        whitening=projection(whitening, matmul_dtype, torch.device("cpu")),
        regression=regression.to(matmul_dtype),
        geometry=_left(left, mean[dim:], moments.num_samples, fit.tag_ridge),
        fit=fit,
        errors=errors,
    )


def _left(covariance: Tensor, shares: Tensor, num_samples: int, tag_ridge: float) -> _Left:
    variance = shares * (1 - shares)
    inverse = torch.linalg.inv(covariance + torch.diag(tag_ridge * variance))
    return _Left(num_samples, shares, (inverse + inverse.T) / 2, tag_ridge)


class _TagSearch:
    """Chooses both ridges and the scale by the likelihood of decisions that were left out."""

    def __init__(self, moments: Moments, points: Tensor, has: Tensor) -> None:
        dim = moments.dim - has.shape[1]
        covariance = covariance_within(moments)
        self.has = has
        mean = moments.pilot + moments.class_sums[0] / moments.num_samples
        self.shares = mean[dim:]
        self._num_samples = moments.num_samples
        self._tags = covariance[dim:, dim:]
        variances, axes = torch.linalg.eigh(covariance[:dim, :dim])
        self._variances = variances.clamp(min=0)
        self._cross = axes.T @ covariance[:dim, dim:]
        centred = points.double() - mean
        self._points, self._left = centred[:, :dim] @ axes, centred[:, dim:]
        self._squares = self._points.square()

    def likeliest(self) -> tuple[tuple[float, float, float, float], Tensor]:
        """Ridge, ridge of tags, scale and likelihood, and the evidence of the decisions with them.

        First the ridge is chosen, then that of the tags, then the ridge again.
        """
        best = self._best([(ridge, TAG_RIDGES[2]) for ridge in RIDGES])
        best = self._best([(best[0], ridge) for ridge in TAG_RIDGES])
        best = self._best([(best[0] * factor, best[1]) for factor in (0.1**0.5, 1, 10**0.5)])
        found = self._left_out(*best[:2])
        geometry = self._geometry(*best[:2])[0]
        return best, best[2] * found.log_odds + geometry.log_prior(self.has)

    def _best(self, tried: list[tuple[float, float]]) -> tuple[float, float, float, float]:
        found = [(*each, *self._likelihood(*each)) for each in tried]
        return max(found, key=lambda each: each[3])

    def _geometry(self, ridge: float, tag_ridge: float) -> tuple[_Left, Tensor]:
        weights = 1 / (self._variances + ridge * self._variances.mean()).clamp(min=SMALLEST**2)
        left = self._tags - self._cross.T @ (weights[:, None] * self._cross)
        return _left(left, self.shares, self._num_samples, tag_ridge), weights

    def _left_out(self, ridge: float, tag_ridge: float) -> _LeftOut:
        geometry, weights = self._geometry(ridge, tag_ridge)
        left = self._left - self._points @ (weights[:, None] * self._cross)
        return geometry.left_out(left, self._squares @ weights, self.has)

    def _likelihood(self, ridge: float, tag_ridge: float) -> tuple[float, float]:
        """The scale and the mean log-likelihood; minus infinity where the ridge is too small."""
        found = self._left_out(ridge, tag_ridge)
        if not float(found.leverage.max()) <= LARGEST_LEVERAGE:
            return 1.0, -math.inf
        prior = self._geometry(ridge, tag_ridge)[0].log_prior(self.has)
        sign = torch.where(self.has, 1.0, -1.0).double()
        log_odds, prior = found.log_odds * sign, prior * sign

        def loss(log_scale: float) -> float:
            return -float(F.logsigmoid(math.exp(log_scale) * log_odds + prior).mean())

        best = scipy.optimize.minimize_scalar(loss, bounds=BOUNDS_OF_SCALE, method="bounded")
        return math.exp(best.x), -float(best.fun)
