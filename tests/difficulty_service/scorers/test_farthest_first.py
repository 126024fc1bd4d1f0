"""The diverse choice beside the plain greedy algorithm, which looks at everything each time."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.scorers import farthest_first
from difficulty_service.scorers.farthest_first import choose_farthest
from difficulty_service.scorers.pool import Pool

SAMPLES, DIM = 120, 5


def unit_rows(samples: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(samples, DIM, generator=generator))


def naive(features: Tensor, count: int, known: Sequence[Tensor], taken: Sequence[int]) -> list[int]:
    """The sample with the largest distance from the nearest known one, `count` times."""
    centres, left = list(known), set(range(len(features))) - set(taken)
    chosen = []
    for _ in range(count):
        nearest = [
            min(float((row.double() - centre.double()).square().sum()) for centre in centres)
            for row in features
        ]
        best = max(sorted(left), key=lambda row, nearest=nearest: round(nearest[row], 9))
        chosen.append(best)
        left.remove(best)
        centres.append(features[best])
    return chosen


@pytest.mark.parametrize("held", [1, 7, 4096])
def test_the_choice_is_that_of_the_plain_algorithm_however_many_are_held(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(farthest_first, "HELD", held)
    monkeypatch.setattr(farthest_first, "ROWS_AT_ONCE", 50)
    monkeypatch.setattr(farthest_first, "CENTRES_AT_ONCE", 3)
    features, covered = unit_rows(SAMPLES), unit_rows(4, seed=1)
    free = np.ones(SAMPLES, bool)
    free[[3, 50]] = False

    chosen = choose_farthest(Pool(free, features, covered=covered), 30)

    expected = naive(features, 30, [*covered, features[3], features[50]], (3, 50))
    assert chosen.tolist() == expected


@pytest.mark.parametrize("held", [1, 5])
def test_of_equal_distances_the_first_sample_counts_and_copies_come_last(
    monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    monkeypatch.setattr(farthest_first, "HELD", held)
    features = torch.eye(4).repeat_interleave(3, dim=0)  # each four directions, three times

    chosen = choose_farthest(Pool(np.ones(12, bool), features, covered=torch.eye(4)[:1]), 12)

    assert chosen[:3].tolist() == [3, 6, 9]
    assert chosen[3:].tolist() == [0, 1, 2, 4, 5, 7, 8, 10, 11]


def test_a_row_of_zeros_is_chosen_when_nothing_else_is_left() -> None:
    features = unit_rows(6)
    features[2] = 0

    chosen = choose_farthest(Pool(np.ones(6, bool), features), 6)

    assert chosen[-1] == 2


def test_the_first_sample_is_any_one_by_the_seed() -> None:
    pools = [Pool(np.ones(SAMPLES, bool), unit_rows(SAMPLES), seed=seed) for seed in (1, 1, 2)]

    one, same, other = (choose_farthest(pool, 5).tolist() for pool in pools)

    assert one == same
    assert one[0] != other[0]


def test_the_largest_gap_is_at_most_twice_that_of_the_best_choice() -> None:
    features = unit_rows(12, seed=3)
    distances = torch.cdist(features, features)

    chosen = choose_farthest(Pool(np.ones(12, bool), features), 2)

    gaps = [
        float(distances[:, [one, other]].amin(dim=1).max())
        for one in range(12)
        for other in range(one)
    ]
    assert float(distances[:, chosen].amin(dim=1).max()) <= 2 * min(gaps)


def test_every_sample_is_compared_with_every_centre_once() -> None:
    compared: list[int] = []
    free = np.ones(SAMPLES, bool)
    free[0] = False
    pool = Pool(free, unit_rows(SAMPLES), covered=unit_rows(3), on_compared=compared.append)

    choose_farthest(pool, 10)

    assert sum(compared) == SAMPLES * 4  # the ten are told apart among those that are held
