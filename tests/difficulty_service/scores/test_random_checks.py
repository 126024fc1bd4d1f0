"""How many labels are wrong follows from those that were looked at in a random order."""

import numpy as np
import pytest
from scipy.stats import hypergeom

from difficulty_service.scores.provenance import RandomCheck
from difficulty_service.scores.random_checks import left_at_random, wrong_among

DRAWS = 2000


@pytest.mark.parametrize(
    ("total", "checked", "wrong"),
    [(1000, 50, 0), (1000, 50, 4), (1000, 50, 50), (60, 50, 3), (10, 10, 3), (700, 200, 90)],
)
def test_the_interval_is_the_exact_one(total: int, checked: int, wrong: int) -> None:
    numbers = np.arange(wrong, total - (checked - wrong) + 1)
    so_many = hypergeom.sf(wrong - 1, total, numbers, checked)
    so_few = hypergeom.cdf(wrong, total, numbers, checked)

    found = wrong_among(total, checked, wrong)

    assert found == (numbers[so_many >= 0.025].min(), numbers[so_few >= 0.025].max())


def test_many_labels_of_a_large_dataset_do_not_underflow() -> None:
    low, high = wrong_among(1_000_000, 20_000, 1_500)

    assert 70_000 < low < 75_000 < high < 80_000


@pytest.mark.parametrize("share", [0.002, 0.02, 0.2])
@pytest.mark.parametrize("is_random_first", [True, False])
def test_the_interval_holds_what_is_left_as_often_as_it_says(
    share: float, *, is_random_first: bool
) -> None:
    generator = np.random.default_rng(0)
    total, checked, doubted = 1000, 50, 60
    wrong = np.zeros(total, bool)
    wrong[: round(share * total)] = True  # of which those that were doubted are mostly found
    held = 0
    for _ in range(DRAWS):
        if is_random_first:
            chosen = generator.choice(total, checked, replace=False)
            others = np.setdiff1d(np.arange(doubted), chosen)
        else:
            others = np.arange(doubted)
            chosen = generator.choice(np.arange(doubted, total), checked, replace=False)
        found = int(wrong[others].sum())
        check = RandomCheck(
            checked=checked,
            wrong=int(wrong[chosen].sum()),
            among=total,
            since=found,
            beside=len(others),
            wrong_beside=found,
        )
        _, low, high = left_at_random(check)
        held += low <= wrong.sum() - wrong[chosen].sum() - found <= high

    assert held / DRAWS >= 0.95
