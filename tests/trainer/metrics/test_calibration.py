"""Bins of equal width, of equal mass and per class, beside references and plain loops."""

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics.calibration import (
    adaptive_ece,
    bin_of,
    classwise_ece,
    classwise_ece_of_probabilities,
    ece,
    equal_mass_bins,
    equal_width_bins,
    l2_ece,
    mce,
    sure_samples,
)
from trainer.metrics.predictions import confidence_and_correct

Batches = dict[str, tuple[Tensor, Tensor]]
Values = dict[str, dict[str, float]]

REFERENCES = {
    "ece_focal": (ece, 1e-6),
    "ece_fn_focal": (ece, 1e-9),
    "ece_netcal": (ece, 1e-9),
    "ece_formula": (ece, 1e-9),
    "mce_focal": (mce, 1e-6),
    "mce_netcal": (mce, 1e-9),
    "mce_formula": (mce, 1e-9),
    "adaece_tu": (adaptive_ece, 1e-6),
    "adaece_formula": (adaptive_ece, 1e-9),
}
# netcal closes bins on the left, and set x has confidences on an edge.
CASES = [(s, k) for s in "abxhs" for k in REFERENCES if not (s == "x" and k.endswith("netcal"))]


@pytest.mark.parametrize("num_bins", [10, 15])
@pytest.mark.parametrize(("name", "key"), CASES)
def test_calibration_errors_are_those_of_the_references(
    golden_batches: Batches, golden_metrics: Values, name: str, key: str, num_bins: int
) -> None:
    metric, tolerance = REFERENCES[key]

    value = metric(*golden_batches[name], num_bins)

    expected = golden_metrics[name][f"{key}_{num_bins}"]
    assert value == pytest.approx(expected, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("num_bins", [10, 15])
@pytest.mark.parametrize("name", "abh")
def test_the_l2_ece_is_that_of_the_reference(
    golden_batches: Batches, golden_metrics: Values, name: str, num_bins: int
) -> None:
    value = l2_ece(*golden_batches[name], num_bins)

    # In set h, 21 confidences round to 1 in float32, to which the reference gives an extra bin.
    tolerance = 1e-4 if name == "h" else 1e-6
    assert value == pytest.approx(golden_metrics[name][f"ece_tm_l2_{num_bins}"], rel=tolerance)


def test_the_l2_ece_lies_between_ece_and_mce(batch: tuple[Tensor, Tensor]) -> None:
    bins = equal_width_bins(*confidence_and_correct(*batch))
    squares = bins.counts * bins.gaps**2

    assert l2_ece(*batch) == pytest.approx(math.sqrt(squares.sum() / bins.counts.sum()))
    assert ece(*batch) < l2_ece(*batch) < mce(*batch)


@pytest.mark.parametrize("num_bins", [10, 15])
@pytest.mark.parametrize("name", "abh")
def test_classwise_ece_is_that_of_the_references(
    golden_batches: Batches, golden_metrics: Values, name: str, num_bins: int
) -> None:
    value = classwise_ece(*golden_batches[name], num_bins)

    assert value == pytest.approx(golden_metrics[name][f"cwece_formula_{num_bins}"], rel=1e-9)
    assert value == pytest.approx(golden_metrics[name][f"cwece_focal_{num_bins}"], rel=1e-6)


@pytest.mark.parametrize("name", "xs")
def test_classwise_ece_adds_the_targets_of_probability_zero_that_references_drop(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    logits, targets = golden_batches[name]
    own = logits.softmax(dim=1)[torch.arange(len(targets)), targets]
    dropped = int((own == 0).sum())

    value = classwise_ece(logits, targets)

    assert dropped > 0
    expected = golden_metrics[name]["cwece_formula_15"] + dropped / logits.numel()
    assert value == pytest.approx(expected, rel=1e-9)


def test_an_error_of_probability_zero_counts_in_full() -> None:
    logits = torch.tensor([[0.0, -1e4]])

    assert classwise_ece(logits, torch.tensor([1])) == 1.0


def test_a_confidence_on_an_edge_belongs_to_the_bin_it_closes() -> None:
    confidence = torch.tensor([0.0, 0.2, 0.2 + 1e-9, 1.0], dtype=torch.float64)

    bins = equal_width_bins(confidence, torch.ones(4), num_bins=5)

    assert bins.counts.tolist() == [2, 1, 0, 0, 1]


@pytest.mark.parametrize("num_bins", [7, 15, 22, 49, 100])
def test_every_edge_closes_its_own_bin_whatever_the_number_of_bins(num_bins: int) -> None:
    edges = torch.arange(1, num_bins + 1, dtype=torch.float64) / num_bins

    bins = equal_width_bins(edges, torch.ones(num_bins), num_bins)

    assert bins.counts.tolist() == [1] * num_bins
    np.testing.assert_array_equal(bins.confidences, bins.upper)


def test_confidence_one_has_no_bin_of_its_own() -> None:
    confidence = torch.tensor([1.0, 0.99], dtype=torch.float64)

    bins = equal_width_bins(confidence, torch.tensor([False, True]))

    assert bins.counts[-1] == 2
    assert bins.largest_gap == pytest.approx(0.495)


def test_a_calibrated_prediction_has_no_calibration_error() -> None:
    confidence = torch.tensor([0.75] * 4 + [0.5] * 4, dtype=torch.float64)
    correct = torch.tensor([True, True, True, False, True, True, False, False])

    assert equal_width_bins(confidence, correct).mean_gap == 0
    assert equal_mass_bins(confidence, correct, num_bins=2).mean_gap == 0


def test_bins_of_equal_mass_count_every_sample_once(batch: tuple[Tensor, Tensor]) -> None:
    logits, targets = batch
    confidence = logits.double().softmax(dim=1).amax(dim=1)

    bins = equal_mass_bins(confidence, logits.argmax(dim=1) == targets, num_bins=15)

    assert bins.counts.tolist() == [27] * 10 + [26] * 5
    assert (bins.upper[:-1] <= bins.lower[1:]).all()
    assert bins.lower[0] == confidence.min()


def test_equal_confidences_that_are_always_wrong_have_an_adaptive_ece_of_that_confidence() -> None:
    logits = torch.tensor([[math.log(3.0), 0.0]], dtype=torch.float64).repeat(40, 1)

    assert adaptive_ece(logits, torch.ones(40, dtype=torch.long)) == pytest.approx(0.75)


def test_fewer_samples_than_bins_leave_empty_bins_out_of_the_error() -> None:
    logits = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)

    value = adaptive_ece(logits, torch.tensor([0, 1]), num_bins=15)

    assert value == pytest.approx(float(1 - logits.softmax(dim=1).amax(dim=1).mean()))


def test_the_edges_of_a_bin_of_equal_mass_are_its_smallest_and_largest_confidence() -> None:
    confidence = torch.tensor([0.9, 0.6, 0.7, 0.8], dtype=torch.float64)

    three, five = (equal_mass_bins(confidence, torch.ones(4), num_bins) for num_bins in (3, 5))

    assert three.lower.tolist() == [0.6, 0.8, 0.9]
    assert three.upper.tolist() == [0.7, 0.8, 0.9]
    assert five.lower.tolist()[:4] == five.upper.tolist()[:4] == [0.6, 0.7, 0.8, 0.9]
    assert five.counts.tolist() == [1, 1, 1, 1, 0]


@pytest.mark.parametrize("num_bins", [1, 2, 15])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_classwise_ece_is_the_mean_of_plain_binning_class_by_class(
    batch: tuple[Tensor, Tensor], dtype: torch.dtype, num_bins: int
) -> None:
    probabilities, targets = batch[0].softmax(dim=1).to(dtype), batch[1]
    edges = np.arange(num_bins + 1) / num_bins
    gaps = []
    for number in range(7):
        column = probabilities[:, number].double().numpy()
        hits = (targets == number).numpy()
        for low, high in itertools.pairwise(edges):
            inside = (column > low) & (column <= high)
            gaps.append(abs(column[inside].sum() - hits[inside].sum()) / len(column))

    value = classwise_ece_of_probabilities(probabilities, targets, num_bins)

    assert value == pytest.approx(sum(gaps) / 7, rel=1e-5 if dtype == torch.float32 else 1e-12)


def test_classwise_ece_of_logits_is_that_of_their_probabilities(
    batch: tuple[Tensor, Tensor],
) -> None:
    logits, targets = batch

    value = classwise_ece(logits, targets)

    assert value == pytest.approx(
        classwise_ece_of_probabilities(logits.double().softmax(dim=1), targets), rel=1e-12
    )


def test_classwise_ece_does_not_depend_on_the_block_size(
    batch: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = classwise_ece(*batch)
    for module in ("calibration", "predictions"):
        monkeypatch.setattr(f"trainer.metrics.{module}.NUMBERS_PER_BLOCK", 50)

    assert classwise_ece(*batch) == pytest.approx(expected, rel=1e-12)
    probabilities = batch[0].double().softmax(dim=1)
    assert classwise_ece_of_probabilities(probabilities, batch[1]) == pytest.approx(expected)


def test_a_class_without_samples_counts_in_the_mean_over_classes() -> None:
    logits = torch.tensor([[0.0, 0.0, -1e4]], dtype=torch.float64).repeat(2, 1)

    assert classwise_ece(logits, torch.tensor([0, 0])) == pytest.approx((0.5 + 0.5) / 3)


def test_sure_samples_are_those_of_confidence_99_percent_or_more() -> None:
    odds = torch.tensor([[100.0, 1.0], [999.0, 1.0], [98.0, 1.0], [1.0, 100.0]])

    sure = sure_samples(odds.double().log(), torch.zeros(4, dtype=torch.long))

    assert sure.share == 0.75
    assert sure.accuracy == pytest.approx(2 / 3)


def test_without_sure_samples_their_accuracy_is_nan() -> None:
    sure = sure_samples(torch.zeros(3, 2), torch.zeros(3, dtype=torch.long))

    assert sure.share == 0
    assert math.isnan(sure.accuracy)


@pytest.mark.parametrize(
    ("logits", "targets", "words"),
    [
        (torch.zeros(0, 3), torch.zeros(0, dtype=torch.long), r"\(0, 3\)"),
        (torch.zeros(3), torch.zeros(3, dtype=torch.long), r"\(3,\)"),
        (torch.zeros(2, 3), torch.zeros(3, dtype=torch.long), r"\(3,\) beside"),
        (torch.tensor([[0.0], [torch.nan]]), torch.tensor([0, 0]), "row 1 .* nan"),
        (torch.tensor([[torch.inf, 0.0]]), torch.tensor([0]), "row 0 .* inf"),
    ],
)
def test_invalid_logits_are_refused(logits: Tensor, targets: Tensor, words: str) -> None:
    with pytest.raises(MetricError, match=words):
        ece(logits, targets)


@pytest.mark.parametrize("target", [-1, 3])
def test_a_target_that_is_not_a_class_is_named(target: int) -> None:
    with pytest.raises(MetricError, match=rf"\[{target}\]"):
        classwise_ece(torch.zeros(1, 3), torch.tensor([target]))


@pytest.mark.parametrize(
    ("confidence", "num_bins", "words"),
    [([0.5], 0, "0 bins"), ([1.5], 15, r"1\.5"), ([math.nan], 15, "nan")],
)
def test_bins_refuse_values_that_are_not_probabilities(
    confidence: list[float], num_bins: int, words: str
) -> None:
    with pytest.raises(MetricError, match=words):
        equal_width_bins(torch.tensor(confidence), torch.ones(1), num_bins)


@pytest.mark.parametrize("metric", [ece, adaptive_ece, classwise_ece, mce])
def test_every_calibration_error_needs_a_bin(
    batch: tuple[Tensor, Tensor], metric: Callable[[Tensor, Tensor, int], float]
) -> None:
    with pytest.raises(MetricError, match="0 bins"):
        metric(*batch, 0)


def test_rounding_moves_no_confidence_across_the_edge_of_a_bin() -> None:
    edges = np.arange(1, 15) / 15
    for ulps in (-2, -1, 0, 1, 2):
        assert bin_of(edges * (1 + ulps * np.finfo(float).eps), 15).tolist() == list(range(14))
    assert bin_of(edges + 1e-14, 15).tolist() == list(range(1, 15))


def test_shares_of_votes_have_the_same_bins_in_single_precision() -> None:
    shares = torch.arange(1, 16, dtype=torch.float64) / 15
    correct = torch.arange(15) % 2
    probabilities = torch.stack([shares, 1 - shares], dim=1)

    assert equal_width_bins(shares.float(), correct).counts.tolist() == [1] * 15
    assert classwise_ece_of_probabilities(probabilities.float(), correct) == pytest.approx(
        classwise_ece_of_probabilities(probabilities, correct), abs=1e-6
    )
