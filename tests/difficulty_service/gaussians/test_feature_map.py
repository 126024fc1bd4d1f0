"""Unit vectors with their similarities to landmarks."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.batches import TensorBatches, TransformedBatches
from difficulty_service.gaussians.feature_map import (
    SHARE_OF_FEATURES,
    FeatureMap,
    make_feature_map,
)
from difficulty_service.gaussians.moments import accumulate_moments, merge
from difficulty_service.gaussians.products import BLOCK_ROWS, Workspace

LANDMARKS = 7


def features_of(samples: int, dim: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return 3 + torch.randn(samples, dim, generator=generator, dtype=torch.float64)


def map_of(features: Tensor, landmarks: int = LANDMARKS, seed: int = 0) -> FeatureMap:
    generator = torch.Generator().manual_seed(seed)
    return make_feature_map(features, landmarks, generator, torch.float64)


def test_a_mapped_vector_is_the_scaled_unit_vector_and_its_similarities() -> None:
    features = features_of(40)
    feature_map = map_of(features)
    units = [(row - features.mean(dim=0)) / (row - features.mean(dim=0)).norm() for row in features]
    deviations = torch.stack(units).std(dim=0, unbiased=False)
    distances = [
        float((unit - landmark).square().sum())
        for unit in units
        for landmark in feature_map.landmarks
    ]
    width = sorted(distances)[(len(distances) - 1) // 2]

    mapped = feature_map(features, Workspace())

    assert feature_map.width == pytest.approx(width)
    for row, unit in zip(mapped, units, strict=True):
        similarities = [
            math.exp(-0.5 * float((unit - landmark).square().sum()) / width)
            for landmark in feature_map.landmarks
        ]
        torch.testing.assert_close(row[:5], SHARE_OF_FEATURES * unit / deviations)
        torch.testing.assert_close(row[5:], torch.tensor(similarities, dtype=torch.float64))


def test_landmarks_are_samples_that_the_seed_chooses() -> None:
    features = features_of(40)

    first, again, other = (map_of(features, seed=seed).landmarks for seed in (0, 0, 1))

    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert all((map_of(features, 40).landmarks == row).all(dim=1).any() for row in first)


def test_there_are_no_more_landmarks_than_samples() -> None:
    assert map_of(features_of(3)).dim == 5 + 3


def test_without_landmarks_only_the_unit_vectors_remain() -> None:
    features = features_of(40)

    plain, mapped = (map_of(features, count)(features, Workspace()) for count in (0, LANDMARKS))

    assert torch.equal(plain, mapped[:, :5])


def test_a_dimension_that_never_varies_stays_zero() -> None:
    features = features_of(40)
    features[:, 2] = 3

    mapped = map_of(features)(features, Workspace())

    assert mapped.isfinite().all()
    assert mapped[:, 2].abs().max() < 1e-9


def test_features_that_are_all_the_same_are_refused() -> None:
    with pytest.raises(StatisticsError, match="the same"):
        map_of(torch.ones(20, 5))


def test_moments_of_mapped_parts_add_up_to_those_of_the_whole() -> None:
    features = features_of(BLOCK_ROWS + 300)
    labels = torch.arange(len(features)) % 3
    feature_map = map_of(features)
    pilot = torch.zeros(feature_map.dim, dtype=torch.float64)

    whole, *parts = (
        accumulate_moments(
            TransformedBatches(TensorBatches(features[rows], labels[rows]), feature_map),
            pilot,
            3,
            matmul_dtype=torch.float64,
        )
        for rows in (slice(None), slice(0, 500), slice(500, None))
    )
    mapped = torch.cat([feature_map(rows, Workspace()) for rows in features.split(100)])

    for moments in (whole, merge(parts)):
        torch.testing.assert_close(moments.scatter, mapped.T @ mapped, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(merge(parts).class_sums, whole.class_sums)


def test_rounded_similarities_are_within_two_digits_of_the_exact_ones() -> None:
    features = features_of(400, 60).float()
    generator = torch.Generator().manual_seed(0)
    exact = make_feature_map(features, LANDMARKS, generator, torch.float32)

    rounded = replace(exact, rounded=True)(features, Workspace())

    expected = exact(features, Workspace())
    assert torch.equal(rounded[:, :60], expected[:, :60])
    assert not torch.equal(rounded[:, 60:], expected[:, 60:])
    torch.testing.assert_close(rounded[:, 60:], expected[:, 60:], rtol=0, atol=0.005)
