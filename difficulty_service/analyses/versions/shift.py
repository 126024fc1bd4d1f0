"""How far two Gaussians are apart, and how far two means would be apart by chance.

The Fréchet distance (Dowson and Landau, 1982; squared, as in the FID) is in squared units of the
features; the Kullback-Leibler divergence is in nats. The parts that a difference of the means adds
to them are apart from those of the covariances, which classes that share a covariance share, too.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.gaussians.gaussian import covariance_within
from difficulty_service.gaussians.moments import Moments, compute_moments, merge, pilot_of
from difficulty_service.gaussians.products import one_thread_per_product

RIDGE = 1e-3
"""Share of the mean variance of the first Gaussian that is added to the variances of both for the
divergence, so that directions in which nothing varies do not decide it."""

ROWS_AT_ONCE = 1 << 12
"""Samples whose share in all permutations is computed at a time."""


@dataclass(frozen=True)
class GaussianShift:
    """From one covariance to another; the means come with each call. All of it is float64.

    Attributes:
        frechet: Fréchet distance of Gaussians with the same mean.
        kl: Divergence of the second from the first with the same mean, in nats.
        whitening: Map under which the first covariance, with the ridge, is 1. Shape (dim, dim).
    """

    frechet: float
    kl: float
    whitening: Tensor

    def squares(self, differences: Tensor) -> tuple[Tensor, Tensor]:
        """Squared lengths of differences of means: as they are, and by the first covariance.

        From shape (means, dim) to twice (means,).
        """
        white = differences @ self.whitening.T
        return differences.square().sum(dim=1), white.square().sum(dim=1)

    def frechet_of(self, squares: Tensor) -> Tensor:
        """Fréchet distances, from the first result of `squares`. Shape (means,)."""
        return squares + self.frechet

    def kl_of(self, white_squares: Tensor) -> Tensor:
        """Divergences, from the second result of `squares`. Shape (means,)."""
        return white_squares / 2 + self.kl


@one_thread_per_product()
def gaussian_shift(first: Tensor, second: Tensor) -> GaussianShift:
    """What two covariances say, each of shape (dim, dim)."""
    first, second = first.double(), second.double()
    dim = len(first)
    values, vectors = torch.linalg.eigh(first)
    root = vectors * values.clamp(min=0).sqrt()
    cross = torch.linalg.eigvalsh(root.T @ second @ root).clamp(min=0).sqrt().sum()
    frechet = float(first.trace() + second.trace() - 2 * cross)
    ridge = RIDGE * float(first.trace()) / dim or 1.0  # or nothing varies
    whitening = (vectors / (values.clamp(min=0) + ridge).sqrt()).T
    eye = torch.eye(dim, dtype=torch.float64)
    relative = torch.linalg.eigvalsh(whitening @ (second + ridge * eye) @ whitening.T)
    kl = float((relative - 1 - relative.log()).sum()) / 2
    return GaussianShift(max(0.0, frechet), max(0.0, kl), whitening)


def permuted_differences(
    features: Tensor, weights: NDArray[np.float64], permutations: int, seed: int
) -> Tensor:
    """The difference of two means, and those after it is drawn anew which samples are in which set.

    Args:
        features: Of all samples of both sets, each once. Shape (samples, dim).
        weights: Weight of each sample in the difference: 1/n of the second set minus 1/n of the
            first, for those in both, too. Shape (samples,).
        seed: Seed of the permutations.

    Returns:
        Float64; the first row is the difference as it is. Shape (1 + permutations, dim).
    """
    generator = np.random.default_rng(seed)
    drawn = np.stack([weights, *(generator.permutation(weights) for _ in range(permutations))])
    total = torch.zeros(len(drawn), features.shape[1], dtype=torch.float64)
    for start in range(0, len(features), ROWS_AT_ONCE):
        some = torch.from_numpy(drawn[:, start : start + ROWS_AT_ONCE])
        total += some @ features[start : start + ROWS_AT_ONCE].double()
    return total


def two_class_scores(
    features: Tensor, is_second: Tensor, groups: NDArray[np.int64], folds: int, seed: int
) -> NDArray[np.float64]:
    """Log-odds that a sample is of the second of two classes, by a discriminant without it.

    Each fold is scored by Gaussians of the others, with a shared covariance to which RIDGE times
    the mean variance is added, or with few samples dimensions per sample times it.

    Args:
        features: Shape (samples, dim).
        is_second: Whether each sample is of the second class; there are some of each class in
            every set of all folds but one. Shape (samples,).
        groups: Numbers from 0. Each fold has as many samples of a group and class as the others,
            as far as possible: else what a fold lacks would look like the other class. Shape
            (samples,).

    Returns:
        Natural log-odds. Shape (samples,).
    """
    generator = np.random.default_rng(seed)
    fold = np.empty(len(features), np.int64)
    strata = 2 * groups + is_second.numpy()
    for stratum in np.unique(strata):
        rows_of_it = np.flatnonzero(strata == stratum)
        fold[rows_of_it] = generator.permutation(np.arange(len(rows_of_it)) % folds)
    places = [torch.from_numpy(np.flatnonzero(fold == number)) for number in range(folds)]
    pilot, labels = pilot_of(features), is_second.long()
    moments = [
        compute_moments(features[rows], labels[rows], pilot, 2, matmul_dtype=torch.float64)
        for rows in places
    ]
    scores = np.empty(len(features))
    for number, rows in enumerate(places):
        weights, offset = _discriminant(merge(moments[:number] + moments[number + 1 :]))
        for some in rows.split(ROWS_AT_ONCE):
            centred = features[some].double() - pilot
            scores[some.numpy()] = (centred @ weights + offset).numpy()
    return scores


def _discriminant(moments: Moments) -> tuple[Tensor, float]:
    """Weights (dim,) and offset of the log-odds of two classes that share a covariance."""
    means = moments.class_sums / moments.counts[:, None]
    within = covariance_within(moments)
    share = max(RIDGE, moments.dim / moments.num_samples)
    ridge = share * float(within.trace()) / len(within) or 1.0  # or nothing varies
    within.diagonal().add_(ridge)
    weights = torch.linalg.solve(within, means[1] - means[0])
    prior = float(moments.counts[1].log() - moments.counts[0].log())
    return weights, prior - float(weights @ means.sum(dim=0)) / 2


def area_under_curve(scores: NDArray[np.float64], positive: NDArray[np.bool_]) -> float:
    """Probability that a positive sample has a larger score than another; ties count half."""
    from scipy.stats import rankdata

    number = int(positive.sum())
    ranks = rankdata(scores)[positive].sum() - number * (number + 1) / 2
    return float(ranks / (number * (len(scores) - number)))
