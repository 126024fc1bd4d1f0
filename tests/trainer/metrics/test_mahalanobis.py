"""Mahalanobis distances from the classes of training samples."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.mahalanobis import FEATURE_SCORES, fit_feature_gaussians

NUM_CLASSES = 3


@pytest.fixture
def training() -> tuple[Tensor, Tensor]:
    """Features of 60 samples far from the origin, of which the third class has none."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(60) % 2
    mixing = torch.randn(4, 4, generator=generator)
    features = torch.randn(60, 4, generator=generator) @ mixing + 100 + 5 * labels[:, None]
    return features, labels


def naive(values: NDArray[Any], classes: NDArray[Any], point: NDArray[Any]) -> float:
    """The smallest squared distance of a point from a class."""
    means = {label: values[classes == label].mean(0) for label in np.unique(classes)}
    centred = values - np.stack([means[label] for label in classes])
    precision = np.linalg.inv(centred.T @ centred / len(values))
    return min(float((point - mean) @ precision @ (point - mean)) for mean in means.values())


def test_distances_are_those_of_the_textbook_formula(training: tuple[Tensor, Tensor]) -> None:
    features, labels = training
    points = torch.randn(7, 4, generator=torch.Generator().manual_seed(1)) + 102
    batches = [(features[rows], labels[rows]) for rows in torch.arange(60).split(25)]

    scores = fit_feature_gaussians(batches, NUM_CLASSES).scores(points)

    assert tuple(scores) == FEATURE_SCORES
    for ending in ("", "_unit"):
        values, tested = (each.double().numpy() for each in (features, points))
        if ending:
            values, tested = (
                each / np.linalg.norm(each, axis=1, keepdims=True) for each in (values, tested)
            )
        classes = labels.numpy()
        own = np.array([naive(values, classes, point) for point in tested])
        all_alike = np.array([naive(values, np.zeros(60, int), point) for point in tested])
        assert scores[f"mahalanobis{ending}"].tolist() == pytest.approx(own.tolist(), rel=1e-5)
        assert scores[f"relative_mahalanobis{ending}"].tolist() == pytest.approx(
            (own - all_alike).tolist(), rel=1e-4, abs=1e-4
        )


def test_directions_in_which_no_class_varies_change_nothing(
    training: tuple[Tensor, Tensor],
) -> None:
    features, labels = training
    constant = torch.cat([features, torch.full((60, 1), 7.0), 3 * features[:, :1]], dim=1)

    plain = fit_feature_gaussians([(features, labels)], NUM_CLASSES).scores(features)
    wider = fit_feature_gaussians([(constant, labels)], NUM_CLASSES).scores(constant)

    # A longer vector has another direction, so that those of unit length differ.
    for by in ("mahalanobis", "relative_mahalanobis"):
        torch.testing.assert_close(wider[by], plain[by], rtol=1e-5, atol=1e-5)


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
        fit_feature_gaussians([(features, labels)], NUM_CLASSES)
