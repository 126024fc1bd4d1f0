"""Likeliest shares of explanations, against a search on a grid."""

import math

import numpy as np
import pytest

from difficulty_service.gaussians import label_shares
from difficulty_service.gaussians.label_shares import (
    ENDS_OF_LOGIT,
    ENDS_OF_WRONG,
    RIGHT_BEFORE,
    SEEN_BEFORE,
    Explained,
    by_chance_before,
    interval,
    likeliest_shares,
)
from difficulty_service.gaussians.roots import Slopes, falling_root

SAMPLES = 300
BEFORE = 20.0
"""Labels wrong by chance that are known besides."""


def explained(right: float, by_chance: float, followed: float, seed: int = 0) -> Explained:
    """Probabilities of labels by each explanation, around these, which vary by sample."""
    factors = np.random.default_rng(seed).uniform(0.1, 1.9, (3, SAMPLES))
    return Explained(factors * np.array([right, by_chance, followed])[:, None], BEFORE)


def log_likelihood(labels: Explained, wrong: float, seen: float) -> float:
    right, by_chance, followed = labels.probabilities
    flipped = (1 - seen) * by_chance + seen * followed
    known = RIGHT_BEFORE * math.log(1 - wrong) + labels.by_chance_before * math.log(1 - seen)
    total = np.log((1 - wrong) * right + wrong * flipped).sum()
    return float(total) + known + SEEN_BEFORE * math.log(seen)


@pytest.mark.parametrize("seed", range(4))
def test_no_shares_around_the_likeliest_ones_are_likelier(seed: int) -> None:
    labels = explained(0.3, 0.1, 0.4, seed)

    found = likeliest_shares(labels)

    assert found.log_likelihood == pytest.approx(
        log_likelihood(labels, found.wrong, found.seen), abs=1e-9
    )
    for by_wrong in (-1e-4, 0, 1e-4):
        for by_seen in (-1e-4, 0, 1e-4):
            other = log_likelihood(labels, found.wrong + by_wrong, found.seen + by_seen)
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

    likeliest_shares(explained(0.3, 0.1, 0.4))

    assert searched == {ENDS_OF_WRONG, ENDS_OF_LOGIT}


def test_labels_that_are_improbable_by_mistake_leave_none_wrong() -> None:
    found = likeliest_shares(explained(0.9, 1e-6, 1e-6))

    assert found.wrong == ENDS_OF_WRONG[0]


def test_labels_that_are_right_by_nothing_are_wrong_but_for_those_known_before() -> None:
    found = likeliest_shares(explained(1e-300, 0.1, 0.1))

    assert found.wrong == pytest.approx(SAMPLES / (SAMPLES + RIGHT_BEFORE), rel=1e-9)


def test_labels_that_both_mistakes_explain_alike_leave_the_share_of_those_known_before() -> None:
    labels = explained(0.2, 0.1, 0.1)
    labels.probabilities[2] = labels.probabilities[1]

    found = likeliest_shares(labels)

    assert found.seen == pytest.approx(SEEN_BEFORE / (SEEN_BEFORE + BEFORE), rel=1e-9)


def test_the_interval_is_that_of_the_likeliest_seen_on_a_grid() -> None:
    labels = explained(0.3, 0.1, 0.4)
    found = likeliest_shares(labels)

    low, high = interval([(labels, found)])

    for end in (low, high):
        best = max(
            log_likelihood(labels, end, float(seen)) for seen in np.linspace(0.001, 0.999, 999)
        )
        assert found.log_likelihood - best == pytest.approx(1.9207294, abs=1e-3)
    assert low < found.wrong < high


def test_other_explanations_widen_the_interval_as_far_as_they_are_likely_enough() -> None:
    factors = [1, 1, 1], [1.05, 1, 1], [0.5, 0.5, 0.5]
    given = explained(0.3, 0.1, 0.4).probabilities
    cases = [Explained(given * np.array(each)[:, None], BEFORE) for each in factors]
    fits = [(each, likeliest_shares(each)) for each in cases]
    alone = [interval([each]) for each in fits[:2]]

    together = interval(fits)

    # The second explains the labels best; the third one not well enough.
    assert together[0] == pytest.approx(alone[1][0], abs=1e-5)
    assert alone[0][0] > together[0]
    assert alone[1][1] <= together[1] < alone[0][1]


def test_an_interval_that_nothing_ends_reaches_the_largest_share() -> None:
    labels = Explained(np.repeat([[1e-300], [0.1], [0.1]], 3, axis=1), BEFORE)
    found = likeliest_shares(labels)

    low, high = interval([(labels, found)])

    assert 0 <= low < found.wrong < high <= labels.most_wrong


def labels_of_two_classes(most_wrong: float) -> Explained:
    """Labels as they follow two classes, of which one has twice the average of wrong labels.

    So its own labels are less probable than none, as far as its labels follow what was seen.
    """
    right = np.random.default_rng(0).uniform(0.05, 0.95, SAMPLES)
    rate = np.where(np.arange(SAMPLES) < SAMPLES / 2, 2.0, 0.0)  # of the class of the label
    followed = (1 - rate) * right + (2 - rate) * (1 - right)
    return Explained(np.array([right, 1 - right, followed]), BEFORE, most_wrong)


def test_what_was_seen_may_make_a_label_less_probable_than_none() -> None:
    labels = labels_of_two_classes(ENDS_OF_WRONG[1] / 2)
    assert labels.probabilities[2].min() < 0

    found = likeliest_shares(labels)

    grid = [
        (log_likelihood(labels, float(wrong), float(seen)), wrong, seen)
        for wrong in np.linspace(0.001, 0.499, 250)
        for seen in np.linspace(0.01, 0.99, 99)
    ]
    best = max(grid)
    assert found.log_likelihood >= best[0]
    assert found.wrong == pytest.approx(best[1], abs=0.003)
    assert found.seen == pytest.approx(best[2], abs=0.02)


def test_no_more_labels_are_wrong_than_the_largest_share() -> None:
    labels = Explained(explained(0.01, 0.4, 0.4).probabilities, BEFORE, most_wrong=0.3)

    found = likeliest_shares(labels)

    assert found.wrong == 0.3
    assert interval([(labels, found)])[1] == 0.3


@pytest.mark.parametrize(
    ("classes", "labels"), [(2, 20), (10, 20), (15, 45), (20, 80), (23, 100), (1000, 100)]
)
def test_the_more_classes_the_more_labels_are_taken_to_be_wrong_by_chance(
    classes: int, labels: float
) -> None:
    assert by_chance_before(classes) == pytest.approx(labels)
