"""Moments: one pass, mergeable, the same for any partition."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from difficulty_service.base.errors import StatisticsError
from difficulty_service.gaussians import products
from difficulty_service.gaussians.moments import (
    Moments,
    compute_moments,
    empty_moments,
    merge,
    pilot_of,
)

NUM_CLASSES = 4


def make_features(rows: int = 300, dim: int = 6, offset: float = 5.0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(rows)
    features = torch.randn(rows, dim, generator=generator, dtype=torch.float64) + offset
    return features, torch.arange(rows) % NUM_CLASSES


def assert_same_bits(left: Moments, right: Moments) -> None:
    for name in ("pilot", "counts", "class_sums", "scatter"):
        assert torch.equal(getattr(left, name), getattr(right, name)), name


def test_moments_match_sums_written_out() -> None:
    features, labels = make_features()
    pilot = pilot_of(features)

    result = compute_moments(features, labels, pilot, NUM_CLASSES, matmul_dtype=torch.float64)

    centred = features.numpy() - pilot.numpy()
    np.testing.assert_allclose(result.scatter, centred.T @ centred, rtol=1e-12)
    for label in range(NUM_CLASSES):
        rows = centred[labels.numpy() == label]
        assert result.counts[label] == len(rows)
        np.testing.assert_allclose(result.class_sums[label], rows.sum(axis=0), rtol=1e-11)


@settings(max_examples=25, deadline=None)
@given(cuts=st.lists(st.integers(0, 300), max_size=6), order=st.randoms(use_true_random=False))
def test_any_partition_in_any_order_gives_the_same_moments(
    cuts: list[int], order: random.Random
) -> None:
    features, labels = make_features()
    pilot = pilot_of(features)
    borders = [0, *sorted(cuts), 300]
    slices = [slice(a, b) for a, b in itertools.pairwise(borders)]
    order.shuffle(slices)

    parts = [
        compute_moments(features[s], labels[s], pilot, NUM_CLASSES, matmul_dtype=torch.float64)
        for s in slices
    ]

    merged = merge(parts)
    whole = compute_moments(features, labels, pilot, NUM_CLASSES, matmul_dtype=torch.float64)
    assert torch.equal(merged.counts, whole.counts)
    torch.testing.assert_close(merged.scatter, whole.scatter, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(merged.class_sums, whole.class_sums, rtol=1e-12, atol=1e-11)


def test_parallel_workers_give_the_same_bits_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    features, labels = make_features(1000)
    features = features.float()
    monkeypatch.setattr(products, "num_workers", lambda: 1)
    alone = compute_moments(features, labels, pilot_of(features), NUM_CLASSES)

    monkeypatch.setattr(products, "num_workers", lambda: 5)
    side_by_side = compute_moments(features, labels, pilot_of(features), NUM_CLASSES)

    assert_same_bits(alone, side_by_side)


def test_moments_of_several_batches_equal_those_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    features, labels = make_features(1000)
    whole = compute_moments(
        features, labels, pilot_of(features), NUM_CLASSES, matmul_dtype=torch.float64
    )

    monkeypatch.setattr("difficulty_service.gaussians.products.MOST_BATCH_ROWS", 64)
    monkeypatch.setattr("difficulty_service.gaussians.products.BLOCK_ROWS", 10)
    chunked = compute_moments(
        features, labels, pilot_of(features), NUM_CLASSES, matmul_dtype=torch.float64
    )

    torch.testing.assert_close(chunked.scatter, whole.scatter, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(chunked.class_sums, whole.class_sums, rtol=1e-12, atol=1e-11)


def test_merging_moves_another_pilot_to_the_first_one() -> None:
    features, labels = make_features()
    first = compute_moments(
        features[:100], labels[:100], pilot_of(features), NUM_CLASSES, matmul_dtype=torch.float64
    )
    other = compute_moments(
        features[100:],
        labels[100:],
        torch.zeros(6).double(),
        NUM_CLASSES,
        matmul_dtype=torch.float64,
    )

    merged = merge([first, other])

    whole = compute_moments(
        features, labels, pilot_of(features), NUM_CLASSES, matmul_dtype=torch.float64
    )
    torch.testing.assert_close(merged.scatter, whole.scatter, rtol=1e-10, atol=1e-9)
    torch.testing.assert_close(merged.class_sums, whole.class_sums, rtol=1e-10, atol=1e-9)


def test_a_large_mean_does_not_spoil_float32_products() -> None:
    features, labels = make_features(2000, offset=1000.0)
    exact = compute_moments(
        features, labels, pilot_of(features), NUM_CLASSES, matmul_dtype=torch.float64
    )

    rounded = compute_moments(features.float(), labels, pilot_of(features), NUM_CLASSES)

    torch.testing.assert_close(rounded.scatter, exact.scatter, rtol=1e-3, atol=1.0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_features_of_any_floating_dtype_are_accepted(dtype: torch.dtype) -> None:
    features, labels = make_features()

    result = compute_moments(features.to(dtype), labels, pilot_of(features), NUM_CLASSES)

    assert result.num_samples == 300


def test_no_samples_have_empty_moments() -> None:
    pilot = torch.zeros(3).double()

    result = compute_moments(torch.empty(0, 3), torch.empty(0, dtype=torch.int64), pilot, 2)

    assert_same_bits(result, empty_moments(pilot, 2))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("row", [17, 1030, 4500])
def test_a_feature_that_is_not_finite_is_named_by_its_row(value: float, row: int) -> None:
    features, labels = make_features(5000)
    features[row:, 2] = value

    with pytest.raises(StatisticsError, match=f"infinity, the first of them in row {row};"):
        compute_moments(features, labels, torch.zeros(6).double(), NUM_CLASSES)


def test_features_that_are_not_finite_are_to_be_extracted_in_full_precision() -> None:
    features, labels = make_features()
    features[5] = torch.nan

    with pytest.raises(StatisticsError, match=r"with precision='fp32'$") as caught:
        compute_moments(features, labels, torch.zeros(6).double(), NUM_CLASSES)

    assert caught.value.parameter == "precision"


def test_features_whose_products_overflow_are_to_be_fitted_in_float64() -> None:
    features, labels = make_features()
    features, pilot = 1e20 * features, torch.zeros(6).double()

    with pytest.raises(
        StatisticsError, match=r"overflow float32; fit with matmul_dtype='float64'$"
    ) as caught:
        compute_moments(features, labels, pilot, NUM_CLASSES)

    assert caught.value.parameter == "matmul_dtype"
    moments = compute_moments(features, labels, pilot, NUM_CLASSES, matmul_dtype=torch.float64)
    assert moments.scatter.isfinite().all()


def test_features_whose_products_overflow_float64_are_to_be_scaled() -> None:
    features, labels = make_features()
    features, pilot = 1e200 * features.double(), torch.zeros(6).double()

    with pytest.raises(StatisticsError, match=r"overflow float64; divide the features by"):
        compute_moments(features, labels, pilot, NUM_CLASSES, matmul_dtype=torch.float64)

    moments = compute_moments(
        features / 1e200, labels, pilot, NUM_CLASSES, matmul_dtype=torch.float64
    )
    assert moments.scatter.isfinite().all()


def test_features_of_another_dimension_than_the_pilot_are_an_error() -> None:
    features, labels = make_features(dim=6)

    with pytest.raises(StatisticsError, match=r"shape \(300, 6\), expected \(samples, 5\)"):
        compute_moments(features, labels, torch.zeros(5).double(), NUM_CLASSES)


@pytest.mark.parametrize("label", [-1, NUM_CLASSES])
def test_a_label_out_of_range_is_an_error(label: int) -> None:
    features, labels = make_features()
    labels[3] = label

    with pytest.raises(StatisticsError, match="expected 0 to 3"):
        compute_moments(features, labels, pilot_of(features), NUM_CLASSES)


def test_moments_of_other_dimensions_are_not_merged() -> None:
    three, four = (empty_moments(torch.zeros(dim).double(), 2) for dim in (3, 4))

    with pytest.raises(StatisticsError, match="4 dimensions"):
        merge([three, four])
