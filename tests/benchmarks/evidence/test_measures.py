"""The numbers that compare scores with what is known, against plain re-computations."""

import numpy as np
import pytest
from scipy.stats import entropy, spearmanr

from benchmarks.evidence.measures import (
    auroc_difference,
    auroc_with_error,
    detection,
    entropy_of_counts,
    mean_of_ranks,
    spearman_difference,
)


@pytest.fixture
def scores() -> tuple[np.ndarray, np.ndarray]:
    """Sixty samples, with ties, of which about a third are wrong and score higher."""
    generator = np.random.default_rng(0)
    wrong = generator.random(60) < 0.3
    return np.round(generator.standard_normal(60) + wrong, 1), wrong


def test_the_auroc_is_the_share_of_pairs_in_the_right_order(
    scores: tuple[np.ndarray, np.ndarray],
) -> None:
    values, wrong = scores

    auroc, _ = auroc_with_error(values, wrong)

    difference = values[wrong][:, None] - values[~wrong]
    assert auroc == pytest.approx(((difference > 0) + 0.5 * (difference == 0)).mean())


def test_the_interval_is_that_of_delong_over_all_pairs(
    scores: tuple[np.ndarray, np.ndarray],
) -> None:
    values, wrong = scores

    _, error = auroc_with_error(values, wrong)

    difference = values[wrong][:, None] - values[~wrong]
    placed = (difference > 0) + 0.5 * (difference == 0)
    of_wrong, of_right = placed.mean(axis=1), placed.mean(axis=0)
    variance = of_wrong.var(ddof=1) / wrong.sum() + of_right.var(ddof=1) / (~wrong).sum()
    assert error == pytest.approx(1.959964 * np.sqrt(variance), rel=1e-6)


def test_the_interval_of_a_difference_is_that_of_delong_for_correlated_curves(
    scores: tuple[np.ndarray, np.ndarray],
) -> None:
    values, wrong = scores
    other = values + np.random.default_rng(1).standard_normal(60)

    difference, error = auroc_difference(values, other, wrong)

    own, others = (auroc_with_error(each, wrong)[0] for each in (values, other))
    assert difference == pytest.approx(own - others)
    kernels = []
    for each in (values, other):
        gaps = each[wrong][:, None] - each[~wrong]
        kernels.append((gaps > 0) + 0.5 * (gaps == 0))
    contrast = np.array([1, -1])
    covariance = sum(
        np.cov([kernel.mean(axis=axis) for kernel in kernels]) / kernels[0].shape[1 - axis]
        for axis in (0, 1)
    )
    assert error == pytest.approx(1.959964 * np.sqrt(contrast @ covariance @ contrast), rel=1e-6)


def test_a_score_is_surely_as_good_as_itself(scores: tuple[np.ndarray, np.ndarray]) -> None:
    assert auroc_difference(scores[0], 3 * scores[0], scores[1]) == (0, 0)


def test_precision_and_recall_are_those_of_the_samples_flagged() -> None:
    wrong = np.array([True, True, False, False, False])
    flagged = np.array([True, False, True, True, False])

    found = detection(np.array([5.0, 4, 3, 2, 1]), wrong, flagged)

    assert (found["precision"], found["recall"]) == (1 / 3, 1 / 2)
    assert found["average_precision"] == 1


def test_a_method_without_a_cut_has_no_precision() -> None:
    wrong = np.array([True, False, True, False])

    assert "precision" not in detection(np.arange(4.0), wrong, None)


def test_the_entropy_of_votes_counts_a_class_without_votes_as_nothing() -> None:
    counts = np.array([[50, 0, 0], [20, 20, 10]])

    np.testing.assert_allclose(entropy_of_counts(counts), [0, entropy([0.4, 0.4, 0.2])])


def test_the_consensus_ignores_the_scale_of_a_score() -> None:
    first, second = np.array([0.1, 0.3, 0.2]), np.array([3.0, 1, 2])

    np.testing.assert_array_equal(
        mean_of_ranks([first, second]), mean_of_ranks([1000 * first, second])
    )


def test_a_difference_of_correlations_is_that_of_both_and_has_a_paired_interval() -> None:
    generator = np.random.default_rng(0)
    values = generator.normal(size=400)
    first, second = (values + noise * generator.normal(size=400) for noise in (1, 3))

    more, width = spearman_difference(first, second, values)

    expected = spearmanr(first, values)[0] - spearmanr(second, values)[0]
    assert more == pytest.approx(expected)
    assert 0 < width < more
    assert spearman_difference(first, 2 * first, values) == (0, 0)
