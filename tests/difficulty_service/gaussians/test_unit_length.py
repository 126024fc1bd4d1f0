"""Unit vectors around a centre, and features that have no direction."""

import numpy as np
import pytest
import torch

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians.batches import TensorBatches, TransformedBatches
from difficulty_service.gaussians.feature_map import require_spread, scale_to_unit_length
from difficulty_service.gaussians.moments import accumulate_moments, compute_moments

FEATURES = torch.randn(50, 4, generator=torch.Generator().manual_seed(0)) + 5
CENTRE = FEATURES.double().mean(dim=0)


def test_every_feature_vector_is_one_away_from_the_centre_in_its_own_direction() -> None:
    offsets = FEATURES.double().numpy() - CENTRE.numpy()

    scaled = scale_to_unit_length(FEATURES, CENTRE)

    expected = offsets / np.linalg.norm(offsets, axis=1, keepdims=True)
    np.testing.assert_allclose(scaled, expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("dtype", "rounding"), [(torch.float16, 1e-7), (torch.float32, 1e-7), (torch.float64, 1e-15)]
)
def test_features_at_the_centre_become_zero(dtype: torch.dtype, rounding: float) -> None:
    centre = CENTRE.to(dtype).double()
    features = torch.stack([centre, centre * (1 + rounding), centre + 1]).to(dtype)

    lengths = scale_to_unit_length(features, centre).norm(dim=1)

    torch.testing.assert_close(lengths, torch.tensor([0.0, 0.0, 1.0]).double())


@pytest.mark.parametrize("far", [1e6, 1e9])
def test_features_in_float64_have_their_directions_however_far_from_zero(far: float) -> None:
    features = (FEATURES * 1024).round().double() / 1024
    centre = features.mean(dim=0)

    scaled = scale_to_unit_length(features + far, centre + far)

    torch.testing.assert_close(scaled, scale_to_unit_length(features, centre), rtol=0, atol=1e-6)


def test_batches_are_scaled_as_the_whole_is() -> None:
    labels, pilot = torch.arange(50) % 3, torch.zeros(4).double()
    source = TransformedBatches(
        TensorBatches(FEATURES, labels), lambda block, _: scale_to_unit_length(block, CENTRE)
    )

    moments = accumulate_moments(source, pilot, 3, matmul_dtype=torch.float64)

    whole = scale_to_unit_length(FEATURES, CENTRE)
    expected = compute_moments(whole, labels, pilot, 3, matmul_dtype=torch.float64)
    torch.testing.assert_close(moments.scatter, expected.scatter)
    assert torch.equal(moments.counts, expected.counts)
    require_spread(moments)


def test_unit_vectors_without_spread_are_an_error() -> None:
    same = torch.full((9, 4), 0.1)
    vectors = scale_to_unit_length(same, same.double().mean(dim=0) * (1 + 1e-12))
    pilot = torch.zeros(4).double()

    moments = compute_moments(vectors, torch.zeros(9).long(), pilot, 1, matmul_dtype=torch.float64)

    with pytest.raises(StatisticsError, match="all features are the same"):
        require_spread(moments)
