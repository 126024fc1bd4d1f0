"""Misclassification detection and selective prediction."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.predictions import confidence, entropy, join_ties
from trainer.metrics.ranking import auroc, ranked_groups
from trainer.metrics.selective import (
    accuracy_over_rejection,
    augrc,
    aurc,
    certainty_and_correct,
    detection_of_errors,
    e_aurc,
    misclassification_detection,
)

# Samples that the reference ranks below others with the same probabilities, which it rounded
# differently.
ROUNDED_DOWN = {"s": (120, 140, 156)}

Batches = dict[str, tuple[Tensor, Tensor]]
Values = dict[str, dict[str, float]]


@pytest.mark.parametrize("name", "abxhs")
def test_detection_of_errors_is_that_of_the_reference(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    certainty, correct = certainty_and_correct(*golden_batches[name], by="msp")
    certainty[list(ROUNDED_DOWN.get(name, ()))] -= 1e-14

    detection = detection_of_errors(ranked_groups(certainty, correct), convention="nearest")

    assert detection.aupr_error == pytest.approx(golden_metrics[name]["aupr_err_crl"], rel=1e-9)
    assert detection.fpr_at_95_tpr == pytest.approx(golden_metrics[name]["fpr95_crl"], rel=1e-9)


@pytest.mark.parametrize("name", "abh")
def test_areas_under_risk_and_coverage_are_those_of_the_reference(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    certainty, correct = certainty_and_correct(*golden_batches[name], by="msp")

    assert aurc(certainty, correct) == pytest.approx(golden_metrics[name]["aurc_crl"], rel=1e-9)
    assert e_aurc(certainty, correct) == pytest.approx(golden_metrics[name]["eaurc_crl"], rel=1e-9)


@pytest.mark.parametrize("name", "abxhs")
def test_the_crl_rate_is_that_of_the_crl_code(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    detection = misclassification_detection(*golden_batches[name])

    expected = golden_metrics[name]["fpr95_crl"]
    assert detection.fpr_at_95_tpr_crl == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("name", "abh")
def test_the_generalised_area_is_that_of_the_reference_but_for_its_first_step(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    certainty, correct = certainty_and_correct(*golden_batches[name], by="msp")
    num_samples = len(correct)

    # The reference starts at the most certain sample and divides by the width that remains.
    first_error = float(~correct[certainty.argmax()])
    expected = golden_metrics[name]["augrc_tu"] * (1 - 1 / num_samples)
    assert augrc(certainty, correct) == pytest.approx(
        expected + first_error / (2 * num_samples**2), rel=1e-6
    )


def test_the_generalised_area_is_the_formula_of_its_paper(batch: tuple[Tensor, Tensor]) -> None:
    for certainty, correct in (
        certainty_and_correct(*batch, by="entropy"),
        (torch.tensor([3, 3, 2, 2, 1]), torch.tensor([True, False, True, True, False])),
    ):
        accuracy = float(correct.double().mean())
        expected = (1 - auroc(certainty, correct)) * accuracy * (1 - accuracy)
        expected += (1 - accuracy) ** 2 / 2

        assert augrc(certainty, correct) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("correct", "area"), [(True, 0), (False, 0.5)])
def test_the_generalised_area_lies_between_zero_and_a_half(
    correct: bool,  # noqa: FBT001
    area: float,
) -> None:
    assert augrc(torch.arange(6), torch.full((6,), correct)) == area


@pytest.mark.parametrize("name", "xs")
def test_with_ties_broken_by_the_order_of_the_file_the_area_is_that_of_the_reference(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    certainty, correct = certainty_and_correct(*golden_batches[name], by="msp")
    places = torch.argsort(certainty, descending=True, stable=True).argsort()

    assert aurc(-places, correct) == pytest.approx(golden_metrics[name]["aurc_crl"], rel=1e-9)


def test_tied_certainties_give_the_mean_over_all_orders() -> None:
    generator = torch.Generator().manual_seed(0)
    certainty = torch.randint(0, 3, (30,), generator=generator).double()
    correct = torch.rand(30, generator=generator) < 0.6
    areas = [
        aurc(certainty + 1e-3 * torch.rand(30, generator=generator, dtype=torch.float64), correct)
        for _ in range(3000)
    ]

    value = aurc(certainty, correct)

    assert value == pytest.approx(np.mean(areas), abs=4 * np.std(areas) / math.sqrt(len(areas)))


def test_the_area_is_the_mean_error_rate_over_coverages() -> None:
    correct = torch.tensor([True, True, False, True])

    assert aurc(torch.tensor([4, 3, 2, 1]), correct) == pytest.approx((0 + 0 + 1 / 3 + 1 / 4) / 4)


def test_the_excess_is_zero_where_all_predictions_are_wrong() -> None:
    assert e_aurc(torch.arange(5), torch.zeros(5, dtype=torch.bool)) == pytest.approx(0)


def test_the_area_is_zero_where_all_predictions_are_correct() -> None:
    correct = torch.ones(5, dtype=torch.bool)

    assert aurc(torch.arange(5), correct) == 0
    assert e_aurc(torch.arange(5), correct) == 0


def test_rejecting_the_least_certain_leaves_the_accuracy_of_the_others() -> None:
    correct = torch.tensor([False, False, True, False, True, True, True, True, True, True])

    curve = accuracy_over_rejection(torch.arange(10), correct, rejected=[0, 0.1, 0.3, 0.4, 0.99])

    np.testing.assert_allclose(curve.accuracies, [0.7, 7 / 9, 6 / 7, 1, 1])


def test_a_fraction_that_rounds_below_a_whole_number_rejects_that_number() -> None:
    # In floating point 0.29 of 100 is 28.999999999999996.
    correct = torch.arange(100) >= 29

    curve = accuracy_over_rejection(torch.arange(100), correct, rejected=[0.29])

    assert curve.accuracies == [1]


def test_equally_certain_samples_gain_nothing_by_rejection() -> None:
    correct = torch.tensor([True, False, True, True])

    curve = accuracy_over_rejection(torch.zeros(4), correct)

    np.testing.assert_allclose(curve.accuracies, 0.75)


@pytest.mark.parametrize("share", [-0.1, 1.0, math.nan])
def test_a_fraction_that_cannot_be_rejected_is_named(share: float) -> None:
    with pytest.raises(MetricError, match=str(share)):
        accuracy_over_rejection(torch.arange(3), torch.ones(3), rejected=[share])


def test_certainty_by_entropy_ranks_by_minus_the_entropy(batch: tuple[Tensor, Tensor]) -> None:
    logits, targets = batch
    probabilities = logits.double().softmax(dim=1)
    expected = -(probabilities * probabilities.log()).sum(dim=1)

    detection = misclassification_detection(logits, targets, by="entropy")

    torch.testing.assert_close(entropy(logits), expected)
    assert detection.auroc == auroc(-expected, logits.argmax(dim=1) == targets)


def test_successes_and_errors_are_each_positive_once(batch: tuple[Tensor, Tensor]) -> None:
    detection = misclassification_detection(*batch)

    assert detection.aupr_success > detection.auroc > detection.aupr_error > 0.3


def test_certainty_does_not_saturate_as_it_would_in_float32() -> None:
    logits = torch.tensor([[20.0, 0.0], [25.0, 0.0]])

    assert confidence(logits).unique().numel() == 2
    assert logits.softmax(dim=1).amax(dim=1).unique().numel() == 1


def test_entropy_of_excluded_classes_is_that_of_the_others() -> None:
    logits = torch.tensor([[0.0, 0.0, -math.inf]])

    assert float(entropy(logits)) == pytest.approx(math.log(2))


def test_unknown_certainties_are_refused_by_name(batch: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(MetricError, match=r"'margin' is unknown; give one of msp, entropy"):
        misclassification_detection(*batch, by="margin")


def test_a_classifier_without_errors_is_refused_by_count() -> None:
    with pytest.raises(MetricError, match="3 of 3 samples"):
        misclassification_detection(torch.eye(3), torch.arange(3))


def test_certainty_that_is_nan_is_refused() -> None:
    with pytest.raises(MetricError, match="1 of 2"):
        aurc(torch.tensor([0.0, math.nan]), torch.ones(2))


@pytest.mark.parametrize("by", ["msp", "entropy"])
def test_the_same_probabilities_in_another_order_are_equally_certain(by: str) -> None:
    generator = torch.Generator().manual_seed(0)
    row = torch.randint(-3, 4, (9,), generator=generator).double() / 3
    shuffled = torch.stack([row[torch.randperm(9, generator=generator)] for _ in range(300)])
    shifted = shuffled + torch.linspace(-2, 2, 300, dtype=torch.float64).unsqueeze(1)

    certainty, _ = certainty_and_correct(shifted, torch.zeros(300, dtype=torch.int64), by)

    assert certainty.unique().numel() == 1
    assert (shifted.softmax(dim=1).amax(dim=1)).unique().numel() > 1


def test_certainties_that_differ_stay_apart() -> None:
    values = torch.tensor([0.5, 1 - 3e-14, 0.5 + 1e-14, 1.0, 0.5 + 1e-16], dtype=torch.float64)

    joined = join_ties(values)

    assert joined.tolist() == [0.5, 1 - 3e-14, 0.5 + 1e-14, 1.0, 0.5]
