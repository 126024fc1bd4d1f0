"""The bootstrap interval of a rank correlation against resamples that are written out."""

import numpy as np
import pytest
from scipy.stats import spearmanr

from difficulty_service.analyses.audit.score_comparison import spearman_interval, spearman_of_counts


def test_counts_give_the_correlation_of_the_repeated_samples() -> None:
    rng = np.random.default_rng(0)
    first = rng.normal(size=60).round(1)
    second = (first + rng.normal(size=60)).round(1)
    rows = rng.integers(60, size=60)
    places = [np.unique(scores, return_inverse=True)[1] for scores in (first, second)]

    correlation = spearman_of_counts(places[0], places[1], np.bincount(rows, minlength=60))

    assert correlation == pytest.approx(spearmanr(first[rows], second[rows]).statistic, abs=1e-12)


@pytest.mark.slow
def test_the_interval_holds_the_true_correlation_about_95_times_in_100() -> None:
    rng = np.random.default_rng(0)
    true_spearman = 6 / np.pi * np.arcsin(0.8 / 2)

    holds = []
    for seed in range(100):
        first, noise = rng.normal(size=(2, 200))
        low, high = spearman_interval(first, 0.8 * first + 0.6 * noise, seed)
        holds.append(low < true_spearman < high)

    assert 0.9 < np.mean(holds) < 0.99


def test_the_same_order_has_an_interval_of_no_width() -> None:
    scores = np.arange(50.0)

    assert spearman_interval(scores, scores**3) == pytest.approx((1, 1))


def test_four_samples_have_an_interval_although_some_resamples_have_no_order() -> None:
    low, high = spearman_interval(np.arange(4.0), np.array([1.0, 0.0, 3.0, 2.0]))

    assert -1 <= low < 0.6 < high <= 1
