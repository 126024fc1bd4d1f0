"""Shrinkage intensities compared with scikit-learn."""

import numpy as np
import pytest
import sklearn.covariance
import torch

from difficulty_service.gaussians.factor import ledoit_wolf_intensity, oas_intensity, shrink

SHAPES = [(40, 12), (200, 5), (8, 20)]


def centred_samples(shape: tuple[int, int]) -> np.ndarray:
    rng = np.random.default_rng(shape[0])
    samples = rng.standard_normal(shape) @ rng.standard_normal((shape[1], shape[1]))
    return samples - samples.mean(axis=0)


@pytest.mark.parametrize("shape", SHAPES)
def test_oas_intensity_equals_scikit_learn(shape: tuple[int, int]) -> None:
    samples = centred_samples(shape)
    covariance = torch.from_numpy(samples.T @ samples / len(samples))

    _, expected = sklearn.covariance.oas(samples, assume_centered=True)

    assert oas_intensity(covariance, len(samples)) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("shape", SHAPES)
def test_ledoit_wolf_intensity_equals_scikit_learn(shape: tuple[int, int]) -> None:
    samples = centred_samples(shape)
    covariance = torch.from_numpy(samples.T @ samples / len(samples))
    fourth_power = float((np.square(samples).sum(axis=1) ** 2).mean())

    _, expected = sklearn.covariance.ledoit_wolf(samples, assume_centered=True)

    assert ledoit_wolf_intensity(covariance, len(samples), fourth_power) == pytest.approx(
        expected, rel=1e-10
    )


def test_shrinking_keeps_the_mean_variance() -> None:
    covariance = torch.diag(torch.tensor([1.0, 3.0], dtype=torch.float64))

    shrunk = shrink(covariance, 0.25)

    torch.testing.assert_close(shrunk, torch.diag(torch.tensor([1.25, 2.75]).double()))


@pytest.mark.parametrize("intensity", [oas_intensity, lambda c, n: ledoit_wolf_intensity(c, n, 9)])
def test_a_multiple_of_the_identity_needs_no_division_by_zero(intensity) -> None:  # noqa: ANN001
    assert 0 <= intensity(2 * torch.eye(3).double(), 10) <= 1
