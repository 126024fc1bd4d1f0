"""Tests, corrections and intervals of differences of means, against other implementations."""

import numpy as np
import pytest
from scipy.stats import ttest_ind

from difficulty_service.analyses.audit.explanation import bootstrap_intervals, compare_means, holm

Numbers = np.ndarray


@pytest.fixture
def groups() -> tuple[Numbers, Numbers]:
    """Twelve and forty samples of three columns, the last of which is shifted."""
    rng = np.random.default_rng(0)
    return rng.normal(size=(12, 3)) + np.array([0, 0, 2]), 3 * rng.normal(size=(40, 3))


def test_a_p_value_is_the_larger_of_students_and_welchs(groups: tuple[Numbers, Numbers]) -> None:
    first, second = groups
    student, welch = (ttest_ind(*groups, equal_var=equal).pvalue for equal in (True, False))
    # The small group varies less here, and more where the scales are swapped.
    swapped = [ttest_ind(3 * first, second / 3, equal_var=equal).pvalue for equal in (True, False)]

    np.testing.assert_allclose(compare_means(*groups).p_values, np.maximum(student, welch))
    np.testing.assert_allclose(compare_means(3 * first, second / 3).p_values, np.maximum(*swapped))
    assert (student > welch).any()
    assert (swapped[0] < swapped[1]).any()


def test_an_effect_is_the_difference_in_pooled_standard_deviations(
    groups: tuple[Numbers, Numbers],
) -> None:
    first, second = groups
    squares = [((each - each.mean(axis=0)) ** 2).sum(axis=0) for each in groups]
    pooled = np.sqrt((squares[0] + squares[1]) / (12 + 40 - 2))

    result = compare_means(first, second)

    np.testing.assert_allclose(result.differences, first.mean(axis=0) - second.mean(axis=0))
    np.testing.assert_allclose(result.effects, result.differences / pooled)


def test_means_that_were_subtracted_cost_degrees_of_freedom(
    groups: tuple[Numbers, Numbers],
) -> None:
    first, second = groups

    one, ten = compare_means(first, second), compare_means(first, second, second_means=10)

    assert (ten.p_values > one.p_values).all()


def test_columns_that_do_not_vary_tell_nothing() -> None:
    result = compare_means(np.ones((5, 2)), np.array([[1.0, 3.0]] * 4))

    assert result.p_values.tolist() == [1, 1]
    assert result.effects.tolist() == [0, 0]


def test_holm_multiplies_the_smallest_p_value_by_the_number_of_tests() -> None:
    # By hand: 0.01 * 4, then 0.02 * 3, then 0.03 * 2 raised to the one before, then 0.9.
    adjusted = holm(np.array([0.02, 0.9, 0.01, 0.03]))

    np.testing.assert_allclose(adjusted, [0.06, 0.9, 0.04, 0.06])


def test_adjusted_p_values_stay_at_most_one() -> None:
    assert holm(np.array([0.7, 0.8])).tolist() == [1, 1]


@pytest.mark.slow
def test_a_bootstrap_interval_holds_the_true_difference_about_95_times_in_100() -> None:
    rng = np.random.default_rng(0)

    holds = []
    for seed in range(100):
        first, second = rng.exponential(size=(60, 4)) + 1, rng.exponential(size=(200, 4))
        low, high = bootstrap_intervals(first, second, seed)
        holds.append((low < 1) & (high > 1))

    assert 0.9 < np.mean(holds) < 0.98
