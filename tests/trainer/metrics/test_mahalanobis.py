"""Mahalanobis distances from the classes of training samples."""

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.mahalanobis import fit_class_gaussians

NUM_CLASSES = 3


@pytest.fixture
def training() -> tuple[Tensor, Tensor]:
    """Features of 60 samples far from the origin, of which the third class has none."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    mixing = torch.randn(4, 4, generator=generator)
    features = torch.randn(60, 4, generator=generator) @ mixing + 100 + 5 * labels[:, None]
    return features, labels


def test_distances_are_those_of_the_textbook_formula(training: tuple[Tensor, Tensor]) -> None:
    features, labels = training
    points = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)) + 102
    batches = [(features[rows], labels[rows]) for rows in torch.arange(60).split(25)]

    distances = fit_class_gaussians(batches, NUM_CLASSES).distances(points)

    values, classes = features.double().numpy(), labels.numpy()
    means = [values[classes == label].mean(0) for label in (0, 1)]
    centred = values - np.stack(means)[classes]
    precision = np.linalg.inv(centred.T @ centred / 60)
    expected = [
        min((point - mean) @ precision @ (point - mean) for mean in means)
        for point in points.double().numpy()
    ]
    assert distances.tolist() == pytest.approx(expected)


def test_directions_in_which_no_class_varies_change_nothing(
    training: tuple[Tensor, Tensor],
) -> None:
    features, labels = training
    constant = torch.cat([features, torch.full((60, 1), 7.0), 3 * features[:, :1]], dim=1)

    plain = fit_class_gaussians([(features, labels)], NUM_CLASSES).distances(features)
    wider = fit_class_gaussians([(constant, labels)], NUM_CLASSES).distances(constant)

    torch.testing.assert_close(wider, plain, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (torch.zeros(0, 2), "no covariance"),
        (torch.tensor([[1.0, float("nan")]]), "no covariance"),
        (torch.ones(5, 2), "are all equal"),
    ],
)
def test_features_without_a_covariance_are_refused(features: Tensor, message: str) -> None:
    labels = torch.zeros(len(features), dtype=torch.long)

    with pytest.raises(MetricError, match=message):
        fit_class_gaussians([(features, labels)], NUM_CLASSES)
