"""Pairs of samples by inverted lists, beside all cosines in float64."""

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from difficulty_service.analyses.leaks import near_lists
from difficulty_service.analyses.leaks.near_lists import build_lists, made_copies
from difficulty_service.scorers.near_copies import ROUNDING

DIM, SAMPLES, COPIES = 32, 3000, 600


@pytest.fixture(scope="module")
def sets() -> tuple[Tensor, Tensor]:
    """Samples around fifty centres, and others, the first of which are their noisy copies."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(50, DIM, generator=generator)

    def around(count: int) -> Tensor:
        chosen = torch.randint(50, (count,), generator=generator)
        return centres[chosen] + torch.randn(count, DIM, generator=generator)

    samples, others = around(SAMPLES), around(2000)
    noise = torch.linspace(0, 0.4, COPIES)[:, None] * torch.randn(COPIES, DIM, generator=generator)
    others[:COPIES] = samples[:COPIES] + noise
    return normalize(samples), normalize(others)


def pairs_of(samples: Tensor, others: Tensor, threshold: float) -> dict[tuple[int, int], float]:
    lists = build_lists(samples.split(700), threshold)
    rows, columns, cosines = lists.pairs(others)
    pairs = list(zip(rows.tolist(), columns.tolist(), strict=True))
    assert len(pairs) == len(set(pairs))
    return dict(zip(pairs, cosines.tolist(), strict=True))


@pytest.mark.parametrize("threshold", [0.9, 0.97, 1.0])
def test_nearly_all_pairs_are_found_and_no_others(
    sets: tuple[Tensor, Tensor], threshold: float
) -> None:
    samples, others = sets
    found = pairs_of(samples, others, threshold)

    cosines = samples.double() @ others.double().T
    expected = set(map(tuple, (cosines >= threshold - ROUNDING / 2).nonzero().tolist()))
    assert len(found.keys() & expected) >= 0.98 * len(expected) > 0
    for (row, column), cosine in found.items():
        assert cosine == pytest.approx(float(cosines[row, column]), abs=1e-6)
        assert cosines[row, column] >= threshold - 2 * ROUNDING


def test_more_lists_are_searched_where_copies_may_be_farther_away(
    sets: tuple[Tensor, Tensor],
) -> None:
    near, far = (build_lists([sets[0]], threshold) for threshold in (0.97, 0.6))

    assert near.index.nprobe < far.index.nprobe <= far.index.nlist
    assert near.saves_time
    assert not far.saves_time


def test_without_the_copies_that_are_made_pairs_would_be_missed(
    sets: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples, others = sets
    complete = pairs_of(samples, others, 0.8)
    monkeypatch.setattr(near_lists, "_num_searched", lambda *_given: 1)

    assert len(pairs_of(samples, others, 0.8)) < 0.9 * len(complete)


@pytest.mark.parametrize("size", [1, 2, 40])
def test_a_few_samples_are_all_compared(size: int) -> None:
    rows = normalize(torch.randn(size, DIM, generator=torch.Generator().manual_seed(1)))

    assert pairs_of(rows, rows, 0.999).keys() == {(row, row) for row in range(size)}


def test_rows_of_zeros_and_equal_rows_are_searched_like_others() -> None:
    rows = torch.zeros(50, DIM)
    rows[10:, 0] = 1.0

    found = pairs_of(rows, rows, 0.9)

    assert found.keys() == {(row, column) for row in range(10, 50) for column in range(10, 50)}


@pytest.mark.parametrize("cosine", [0.5, 0.97, 1.0])
def test_made_copies_have_the_cosine_and_the_direction_that_are_asked_for(cosine: float) -> None:
    generator = torch.Generator().manual_seed(0)
    one, other = (normalize(torch.randn(20, DIM, generator=generator).double()) for _ in range(2))

    copies = made_copies(one, other, cosine)

    assert np.allclose((copies * one).sum(dim=1), cosine)
    across = copies - cosine * one
    assert cosine == 1.0 or ((across * other).sum(dim=1) > 0).all()
    planes = torch.linalg.matrix_rank(torch.stack([one, other, copies], dim=1), tol=1e-6)
    assert (planes == 2).all()


def test_made_copies_of_equal_features_are_those_features() -> None:
    row = normalize(torch.ones(1, DIM))

    assert torch.allclose(made_copies(row, row, 0.9), row, atol=1e-3)
