"""Gaussians: what is fitted, when a fit is refused, and which warnings it has."""

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.factor import (
    condition_number,
    factorise,
    factorise_with_ridge,
    whiten_with_ridge,
)
from difficulty_service.gaussians.fit_options import FitOptions
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import covariances, fit_gaussians
from difficulty_service.gaussians.moments import empty_moments

NUM_CLASSES = 3


def make_features(rows: int = 240, dim: int = 4) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    labels = torch.randint(NUM_CLASSES, (rows,), generator=generator)
    centres = 3 * torch.randn(NUM_CLASSES, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(rows, dim, generator=generator, dtype=torch.float64)
    return noise + centres[labels], labels


def test_lengths_after_whitening_are_textbook_mahalanobis_distances() -> None:
    offsets = torch.tensor([[2.0, 0.0], [0.0, 3.0]]).double()
    covariance = torch.tensor([[4.0, 0.0], [0.0, 9.0]]).double()

    whitening = factorise(covariance, FitOptions("none", "float64"), 10, float("nan")).whitening

    distances = (offsets @ whitening.T).square().sum(dim=1)
    torch.testing.assert_close(distances, torch.tensor([1.0, 1.0]).double())


def test_both_covariances_are_divided_by_the_number_of_samples() -> None:
    features, labels = make_features()

    within, agnostic = covariances(fit(features, labels, NUM_CLASSES, FitOptions("none")).moments)

    centred = features.numpy().copy()
    for label in range(NUM_CLASSES):
        rows = labels.numpy() == label
        centred[rows] -= centred[rows].mean(axis=0)
    np.testing.assert_allclose(within, centred.T @ centred / 240, rtol=1e-10)
    np.testing.assert_allclose(agnostic, np.cov(features.T, ddof=0), rtol=1e-10)


def test_whitening_makes_the_covariance_the_identity() -> None:
    gaussians = fit(*make_features(), NUM_CLASSES, FitOptions("none"))
    within, _ = covariances(gaussians.moments)

    whitened = gaussians.within.whitening @ within @ gaussians.within.whitening.T

    torch.testing.assert_close(whitened, torch.eye(4).double())


def test_a_well_conditioned_covariance_is_not_changed() -> None:
    gaussians = fit(*make_features(), NUM_CLASSES, FitOptions("none"))

    assert gaussians.within.plain
    assert gaussians.agnostic.plain
    assert gaussians.warnings == ()
    assert gaussians.reliable


def test_the_condition_number_is_that_of_the_one_norm() -> None:
    within, _ = covariances(fit(*make_features(), NUM_CLASSES, FitOptions("none")).moments)

    assert condition_number(within) == pytest.approx(np.linalg.cond(within.numpy(), 1), rel=0.1)


def test_duplicate_dimensions_are_dropped_and_counted() -> None:
    features, labels = make_features()
    doubled = torch.cat([features, features[:, :1], torch.ones(240, 1)], dim=1)

    gaussians = fit(doubled, labels, NUM_CLASSES, FitOptions("none"))

    assert gaussians.within.rank == 4
    assert "2 of 6 directions" in " ".join(gaussians.warnings)


def test_near_duplicate_dimensions_are_noise_in_float32() -> None:
    features, labels = make_features()
    rounded = torch.cat([features, features[:, :1].float().double()], dim=1).float()

    gaussians = fit(rounded, labels, NUM_CLASSES, FitOptions("none"))

    assert gaussians.within.rank == 4


def test_fewer_samples_than_dimensions_are_unreliable_without_shrinkage() -> None:
    features, labels = make_features(rows=20, dim=30)

    gaussians = fit(features, labels, NUM_CLASSES, FitOptions("none"))

    assert not gaussians.reliable
    assert "unreliable" in gaussians.warnings[0]


@pytest.mark.parametrize("shrinkage", ["ledoit-wolf", "oas", 0.1])
def test_shrinkage_makes_fewer_samples_than_dimensions_usable(shrinkage: str | float) -> None:
    features, labels = make_features(rows=20, dim=30)

    gaussians = fit(features, labels, NUM_CLASSES, FitOptions(shrinkage=shrinkage))

    assert gaussians.within.rank == 30
    assert gaussians.within.intensity > 0


def test_the_ridge_of_left_out_samples_makes_them_usable_without_a_warning() -> None:
    features, labels = make_features(rows=20, dim=30)

    gaussians = fit(features, labels, NUM_CLASSES, FitOptions("leave-one-out"))

    assert gaussians.within.rank == gaussians.agnostic.rank == 30
    assert gaussians.within.ridge == gaussians.agnostic.ridge > 0
    assert gaussians.reliable
    assert gaussians.warnings == ()


def test_a_ridge_is_added_to_both_covariances_in_units_of_the_mean_variance() -> None:
    moments = fit(*make_features(), NUM_CLASSES, FitOptions("none")).moments
    within, agnostic = covariances(moments)
    added = 0.3 * agnostic.diagonal().mean() * torch.eye(4).double()

    gaussians = fit_gaussians(moments, FitOptions("leave-one-out", "float64"), ridge=0.3)

    for factor, covariance in ((gaussians.within, within), (gaussians.agnostic, agnostic)):
        whitened = factor.whitening @ (covariance + added) @ factor.whitening.T
        torch.testing.assert_close(whitened, torch.eye(4).double())


def test_identical_features_have_no_ridge_either() -> None:
    labels = torch.arange(50) % 2

    with pytest.raises(StatisticsError, match="all features are the same"):
        fit(torch.ones(50, 3).double(), labels, 2, FitOptions("leave-one-out"))


def test_few_samples_per_dimension_give_a_warning_with_advice() -> None:
    gaussians = fit(*make_features(rows=20), NUM_CLASSES, FitOptions("none"))

    assert any("prefer the column rmd_loo" in sentence for sentence in gaussians.warnings)


def test_classes_of_one_sample_are_known() -> None:
    features, labels = make_features()
    labels[0] = 3

    gaussians = fit(features, labels, 4, FitOptions("none"))

    assert gaussians.single_sample_classes == [3]


def test_identical_features_are_an_error() -> None:
    with pytest.raises(StatisticsError, match="all features are the same"):
        fit(torch.ones(50, 3).double(), torch.zeros(50, dtype=torch.int64), 1)


def test_moments_without_their_dtype_are_an_error() -> None:
    moments = fit(*make_features(), NUM_CLASSES).moments

    with pytest.raises(ValueError, match="'auto' is not the dtype"):
        fit_gaussians(moments, FitOptions())


def test_no_samples_are_an_error() -> None:
    with pytest.raises(StatisticsError, match="no samples"):
        fit_gaussians(empty_moments(torch.zeros(3).double(), 2), FitOptions())


def test_ledoit_wolf_needs_a_second_pass() -> None:
    with pytest.raises(StatisticsError, match="a pass over the features"):
        factorise(torch.eye(3).double(), FitOptions("ledoit-wolf"), 10, float("nan"))


def test_an_intensity_outside_zero_to_one_is_an_error() -> None:
    with pytest.raises(StatisticsError, match=r"1\.5 is outside 0 to 1"):
        fit(*make_features(), NUM_CLASSES, FitOptions(shrinkage=1.5))


def test_whitening_in_the_memory_of_the_covariance_is_the_same_map() -> None:
    rows = torch.randn(30, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    covariance = rows.T @ rows / 30
    expected = factorise_with_ridge(covariance, 0.1, 2.0).whitening

    found = whiten_with_ridge(covariance, 0.1, 2.0)

    torch.testing.assert_close(found, expected)
    assert torch.equal(found, found.tril())
    assert found.data_ptr() == covariance.data_ptr()


def test_a_covariance_without_variance_cannot_be_whitened_in_place() -> None:
    with pytest.raises(StatisticsError, match="the same"):
        whiten_with_ridge(torch.zeros(3, 3, dtype=torch.float64), 1.0, 0.0)
