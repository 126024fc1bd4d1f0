"""Likeliest shares of explanations, against a search on a grid."""

import math

import numpy as np
import pytest

from difficulty_service.gaussians import label_shares
from difficulty_service.gaussians.label_shares import (
    BY_CHANCE_BEFORE,
    ENDS_OF_LOGIT,
    ENDS_OF_WRONG,
    LARGEST_SHARE,
    RIGHT_BEFORE,
    Explanations,
    interval,
    likeliest_shares,
)
from difficulty_service.gaussians.roots import Slopes, falling_root

BEFORE = 10.0
SAMPLES = 300


def explained(right: float, by_chance: float, followed: float, seed: int = 0) -> Explanations:
    """Probabilities of labels by each explanation, around these, which vary by sample."""
    factors = np.random.default_rng(seed).uniform(0.1, 1.9, (3, SAMPLES))
    return factors * np.array([right, by_chance, followed])[:, None]


def log_likelihood(explanations: Explanations, wrong: float, seen: float) -> float:
    right, by_chance, followed = explanations
    flipped = (1 - seen) * by_chance + seen * followed
    known = RIGHT_BEFORE * math.log(1 - wrong) + BY_CHANCE_BEFORE * math.log(1 - seen)
    total = np.log((1 - wrong) * right + wrong * flipped).sum()
    return float(total) + known + BEFORE * math.log(seen)


@pytest.mark.parametrize("seed", range(4))
def test_no_shares_around_the_likeliest_ones_are_likelier(seed: int) -> None:
    explanations = explained(0.3, 0.1, 0.4, seed)

    found = likeliest_shares(explanations, BEFORE)

    assert found.log_likelihood == pytest.approx(
        log_likelihood(explanations, found.wrong, found.seen), abs=1e-9
    )
    for by_wrong in (-1e-4, 0, 1e-4):
        for by_seen in (-1e-4, 0, 1e-4):
            other = log_likelihood(explanations, found.wrong + by_wrong, found.seen + by_seen)
            assert other <= found.log_likelihood + 1e-9
    assert 0.01 < found.wrong < 0.99  # not at an end


def test_both_searches_follow_the_derivative_of_what_falls_to_zero(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With another one they find the same, in many more steps."""
    searched = set()

    def checked(slopes: Slopes, ends: tuple[float, float], start: float, accuracy: float) -> float:
        step = 1e-4
        for place in {ENDS_OF_WRONG: (0.1, 0.4), ENDS_OF_LOGIT: (-1.0, 1.5)}[ends]:
            rise = slopes(place + step)[0] - slopes(place - step)[0]
            assert slopes(place)[1] == pytest.approx(rise / (2 * step), rel=1e-5)
        searched.add(ends)
        return falling_root(slopes, ends, start, accuracy)

    monkeypatch.setattr(label_shares, "falling_root", checked)

    likeliest_shares(explained(0.3, 0.1, 0.4), BEFORE)

    assert searched == {ENDS_OF_WRONG, ENDS_OF_LOGIT}


def test_labels_that_are_improbable_by_mistake_leave_none_wrong() -> None:
    found = likeliest_shares(explained(0.9, 1e-6, 1e-6), BEFORE)

    assert found.wrong == ENDS_OF_WRONG[0]


def test_labels_that_are_right_by_nothing_are_wrong_but_for_those_known_before() -> None:
    found = likeliest_shares(explained(1e-300, 0.1, 0.1), BEFORE)

    assert found.wrong == pytest.approx(SAMPLES / (SAMPLES + RIGHT_BEFORE), rel=1e-9)


def test_labels_that_both_mistakes_explain_alike_leave_the_share_of_those_known_before() -> None:
    explanations = explained(0.2, 0.1, 0.1)
    explanations[2] = explanations[1]

    found = likeliest_shares(explanations, BEFORE)

    assert found.seen == pytest.approx(BEFORE / (BEFORE + BY_CHANCE_BEFORE), rel=1e-9)


def test_the_interval_is_that_of_the_likeliest_seen_on_a_grid() -> None:
    explanations = explained(0.3, 0.1, 0.4)
    found = likeliest_shares(explanations, BEFORE)

    low, high = interval([(explanations, found)], BEFORE)

    for end in (low, high):
        best = max(
            log_likelihood(explanations, end, float(seen))
            for seen in np.linspace(0.001, 0.999, 999)
        )
        assert found.log_likelihood - best == pytest.approx(1.9207294, abs=1e-3)
    assert low < found.wrong < high


def test_other_explanations_widen_the_interval_as_far_as_they_are_likely_enough() -> None:
    fits = [
        (each, likeliest_shares(each, BEFORE))
        for each in (
            explained(0.3, 0.1, 0.4),
            explained(0.3, 0.1, 0.4) * [[1.05], [1], [1]],
            explained(0.3, 0.1, 0.4) * [[0.5], [0.5], [0.5]],
        )
    ]
    alone = [interval([each], BEFORE) for each in fits[:2]]

    together = interval(fits, BEFORE)

    # The second explains the labels best; the third one not well enough.
    assert together[0] == pytest.approx(alone[1][0], abs=1e-5)
    assert alone[0][0] > together[0]
    assert alone[1][1] <= together[1] < alone[0][1]


def test_an_interval_that_nothing_ends_reaches_the_largest_share() -> None:
    explanations = explained(1e-300, 0.1, 0.1)[:, :1] * np.ones(3)[:, None]
    explanations = np.repeat(explanations, 3, axis=1)
    found = likeliest_shares(explanations, BEFORE)

    low, high = interval([(explanations, found)], BEFORE)

    assert 0 <= low < found.wrong < high <= LARGEST_SHARE
