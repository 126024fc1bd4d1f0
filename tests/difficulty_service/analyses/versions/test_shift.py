"""Distances between Gaussians beside their formulas, and the discriminant of two sets."""

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from difficulty_service.analyses.versions.shift import (
    RIDGE,
    area_under_curve,
    gaussian_shift,
    permuted_differences,
    two_class_scores,
)

DIM = 5


def covariance(seed: int) -> Tensor:
    rows = torch.randn(20, DIM, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows.T @ rows / 20


@pytest.fixture
def means() -> Tensor:
    """Differences of three means."""
    return torch.randn(3, DIM, generator=torch.Generator().manual_seed(9), dtype=torch.float64)


def test_the_frechet_distance_is_that_of_its_formula(means: Tensor) -> None:
    first, second = covariance(0), covariance(1)
    shift = gaussian_shift(first, second)

    distances = shift.frechet_of(shift.squares(means)[0])

    root = scipy.linalg.sqrtm(first.numpy() @ second.numpy()).real
    for difference, distance in zip(means, distances.tolist(), strict=True):
        traces = first.trace() + second.trace() - 2 * np.trace(root)
        assert distance == pytest.approx(float(difference @ difference + traces))


def test_the_divergence_is_that_of_its_formula(means: Tensor) -> None:
    ridge = RIDGE * covariance(0).trace() / DIM * torch.eye(DIM, dtype=torch.float64)
    first, second = (
        torch.distributions.MultivariateNormal(torch.zeros(DIM).double(), covariance(seed) + ridge)
        for seed in (0, 1)
    )
    shift = gaussian_shift(covariance(0), covariance(1))

    divergences = shift.kl_of(shift.squares(means)[1])

    for difference, divergence in zip(means, divergences.tolist(), strict=True):
        moved = torch.distributions.MultivariateNormal(difference, second.covariance_matrix)
        assert divergence == pytest.approx(float(torch.distributions.kl_divergence(moved, first)))


def test_equal_gaussians_are_not_apart_even_where_nothing_varies() -> None:
    for matrix in (covariance(0), torch.zeros(DIM, DIM)):
        shift = gaussian_shift(matrix, matrix)

        assert shift.frechet == pytest.approx(0, abs=1e-9)
        assert shift.kl == pytest.approx(0, abs=1e-9)


def test_a_permuted_difference_is_that_of_the_means_of_two_drawn_sets() -> None:
    features = torch.randn(12, DIM, generator=torch.Generator().manual_seed(0))
    weights = np.array([1 / 4] * 4 + [-1 / 8] * 8)

    drawn = permuted_differences(features, weights, 50, seed=1)

    generator = np.random.default_rng(1)
    assert len(drawn) == 51
    for number, difference in enumerate(drawn):
        chosen = (generator.permutation(weights) if number else weights) > 0
        expected = features[chosen].mean(dim=0) - features[~chosen].mean(dim=0)
        torch.testing.assert_close(difference, expected.double(), rtol=1e-5, atol=1e-6)


def test_the_scores_of_a_sample_are_those_of_a_discriminant_without_its_fold() -> None:
    generator = torch.Generator().manual_seed(2)
    is_second = torch.arange(40) % 4 == 0
    features = torch.randn(40, DIM, generator=generator) + 50 + is_second[:, None]

    groups = np.zeros(40, np.int64)

    scores = two_class_scores(features, is_second, groups, folds=40, seed=0)

    # With as many folds as samples each fold has one of the first class, or one of each.
    data, second = features.double().numpy(), is_second.numpy()
    fold = np.empty(40, int)
    random = np.random.default_rng(0)
    for label in (False, True):
        rows = np.flatnonzero(second == label)
        fold[rows] = random.permutation(np.arange(len(rows)))
    for row in range(40):
        rest = fold != fold[row]
        one, other = (data[rest & (second == label)] for label in (False, True))
        means = one.mean(axis=0), other.mean(axis=0)
        centred = np.concatenate([one - means[0], other - means[1]])
        within = centred.T @ centred / len(centred)
        within += DIM / len(centred) * np.trace(within) / DIM * np.eye(DIM)
        weights = np.linalg.solve(within, means[1] - means[0])
        odds = weights @ (data[row] - (means[0] + means[1]) / 2) + np.log(len(other) / len(one))
        assert scores[row] == pytest.approx(odds, rel=1e-6, abs=1e-6)


def test_the_area_is_the_share_of_pairs_in_the_right_order() -> None:
    scores, positive = np.array([3.0, 1.0, 2.0, 2.0, 0.0]), np.array([1, 0, 1, 0, 0], bool)

    area = area_under_curve(scores, positive)

    pairs = [(one > other) + (one == other) / 2 for one in (3.0, 2.0) for other in (1.0, 2.0, 0.0)]
    assert area == pytest.approx(np.mean(pairs))
