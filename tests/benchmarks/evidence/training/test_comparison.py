"""Methods are compared seed by seed, and the answers follow from the numbers by a rule."""

import pytest
from scipy.stats import ttest_rel

from benchmarks.evidence.training.answers import counting, judge
from benchmarks.evidence.training.comparison import (
    MEASURES,
    Difference,
    difference,
    mean_and_deviation,
)

ACCURACY, NLL = MEASURES[0], MEASURES[3]


def runs(*accuracies: float) -> dict[int, dict[str, dict[str, dict[str, float]]]]:
    return {
        seed: {"metrics": {"raw": {"accuracy": value, "nll": value}}}
        for seed, value in enumerate(accuracies)
    }


def test_the_interval_of_a_difference_is_that_of_a_paired_t_test() -> None:
    first, second = (0.71, 0.74, 0.73), (0.70, 0.71, 0.715)

    found = difference(runs(*first), runs(*second), ACCURACY)

    interval = ttest_rel(first, second).confidence_interval(0.95)
    assert found is not None
    assert found.mean == pytest.approx(sum(first) / 3 - sum(second) / 3)
    assert (found.mean - found.error, found.mean + found.error) == pytest.approx(tuple(interval))


def test_only_seeds_that_both_methods_have_are_compared() -> None:
    longer = {**runs(0.5, 0.6), 7: {"metrics": {"raw": {"accuracy": 9.0}}}}

    found = difference(longer, runs(0.4, 0.5, 0.9), ACCURACY)

    assert found is not None
    assert found.mean == pytest.approx(0.1)
    assert difference(runs(0.5), runs(0.4), ACCURACY) is None


def test_the_deviation_over_seeds_is_that_of_a_sample() -> None:
    assert mean_and_deviation(runs(0.5, 0.7), ACCURACY) == pytest.approx((0.6, 0.02**0.5))


def test_a_difference_within_its_interval_is_no_answer() -> None:
    assert Difference(0.01, 0.02, ACCURACY).verdict == 0
    assert Difference(-0.02, 0.02, NLL).verdict == 0


def test_more_accuracy_and_less_loss_are_better() -> None:
    assert Difference(0.02, 0.01, ACCURACY).verdict == 1
    assert Difference(-0.02, 0.01, ACCURACY).verdict == -1
    assert Difference(-0.02, 0.01, NLL).verdict == 1
    assert Difference(0.02, 0.01, NLL).verdict == -1


def test_a_method_helps_only_if_something_is_better_beyond_doubt_and_nothing_worse() -> None:
    better, unsure = Difference(0.02, 0.01, ACCURACY), Difference(0.02, 0.03, ACCURACY)
    worse = Difference(0.2, 0.1, NLL)

    assert judge([better, unsure]) == ("helps", ("accuracy",), ())
    assert judge([unsure]) == ("does not help", (), ())
    assert judge([worse, unsure]) == ("does harm", (), ("NLL",))
    assert judge([better, worse]) == ("helps in part", ("accuracy",), ("NLL",))
    assert judge([]) == ("too few runs to say", (), ())


def test_measures_after_temperature_scaling_count_under_right_labels_only() -> None:
    found = [Difference(0.1, 0.0, measure) for measure in MEASURES]

    assert counting(found, "official") == found
    assert [each.measure.name for each in counting(found, "worst")] == [
        *("accuracy (%)", "AUROC of errors", "adaptive ECE (%)", "NLL")
    ]
