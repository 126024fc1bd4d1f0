"""Pairs of samples with a large cosine, compared with all cosines in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from difficulty_service.base.errors import StatisticsError
from difficulty_service.scorers import near_copies
from difficulty_service.scorers.near_copies import (
    ROUNDING,
    near_pairs,
    near_pairs_between,
    pairs_by_products,
)


@pytest.fixture
def features() -> Tensor:
    """150 rows of unit length: 100 at random, then noisy copies of the first 50."""
    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(100, 16, generator=generator)
    noise = torch.linspace(0, 1, 50)[:, None] * torch.randn(50, 16, generator=generator)
    return normalize(torch.cat([rows, rows[:50] + noise]))


def pairs_of(features: Tensor, threshold: float) -> set[tuple[int, int]]:
    """The pairs (later row, earlier row); each must be there once."""
    blocks = list(near_pairs(features, threshold))
    pairs = [pair for block in blocks for pair in zip(*map(np.ndarray.tolist, block), strict=True)]
    assert len(pairs) == len(set(pairs))
    return set(pairs)


def naive_pairs(features: Tensor, threshold: float) -> set[tuple[int, int]]:
    rows = features.double().numpy()
    return {
        (later, earlier)
        for later in range(len(rows))
        for earlier in range(later)
        if rows[later] @ rows[earlier] >= threshold
    }


@pytest.mark.parametrize("rows_at_once", [1, 64, 1000])
@pytest.mark.parametrize("threshold", [0.2, 0.8, 0.97])
def test_all_pairs_with_this_cosine_are_found_whatever_the_blocks(
    features: Tensor, threshold: float, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_copies, "ROWS_AT_ONCE", rows_at_once)

    pairs = pairs_of(features, threshold)

    assert naive_pairs(features, threshold) <= pairs
    assert pairs <= naive_pairs(features, threshold - 2 * ROUNDING)
    assert len(pairs) > 10


@pytest.mark.parametrize("rows_at_once", [1, 16, 1000])
def test_pairs_between_two_sets_are_found_with_their_cosines(
    features: Tensor, rows_at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_copies, "ROWS_AT_ONCE", rows_at_once)
    queries, references = features[100:], features[:90]

    found = {
        (row, column): cosine
        for block in near_pairs_between(queries, references, 0.8)
        for row, column, cosine in zip(*map(np.ndarray.tolist, block), strict=True)
    }

    cosines = queries.double() @ references.double().T
    assert found.keys() == {(row, column) for row, column in (cosines >= 0.8).nonzero().tolist()}
    assert len(found) > 10
    assert all(
        cosine == pytest.approx(float(cosines[row, column]))
        for (row, column), cosine in found.items()
    )


def test_products_of_matrices_find_what_faiss_finds(
    features: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(near_copies, "ROWS_AT_ONCE", 7)
    queries, references = features[100:], features[:90]

    blocks = list(pairs_by_products(references, queries, 0.8))

    found = {pair for rows, others, _ in blocks for pair in zip(rows, others, strict=True)}
    cosines = queries.double() @ references.double().T
    assert found == {(row, other) for row, other in (cosines >= 0.8).nonzero().tolist()}
    assert len(found) > 10
    for rows, others, values in blocks:
        assert values == pytest.approx(cosines[rows, others].numpy())


def test_a_threshold_of_one_finds_exact_copies_despite_rounding() -> None:
    rows = normalize(torch.rand(200, 513, generator=torch.Generator().manual_seed(0)))

    pairs = pairs_of(torch.cat([rows, rows]), 1.0)

    assert pairs == {(200 + row, row) for row in range(200)}


def test_rows_of_zeros_are_in_no_pair(features: Tensor) -> None:
    features[[3, 7]] = 0

    assert not {3, 7} & {row for pair in pairs_of(features, 1e-4) for row in pair}


def test_features_that_are_not_finite_are_an_error(features: Tensor) -> None:
    features[5, 0] = torch.nan

    with pytest.raises(StatisticsError, match="row 5"):
        next(near_pairs(features, 0.9))
