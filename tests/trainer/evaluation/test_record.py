"""The record of metrics holds every metric once, before and after temperature scaling."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError, TrainingError
from trainer.evaluation.record import (
    STAGES,
    add_records,
    compute_metrics,
    evaluate_ood,
    evaluate_predictions,
    ood_curves,
    read_metrics,
    read_records,
    write_metrics,
)
from trainer.evaluation.temperature_scaling import (
    fit_temperature_by_adaptive_ece,
    fit_temperature_by_ece,
    fit_temperature_by_nll,
)
from trainer.metrics import METRICS
from trainer.metrics.bootstrap import Resampling
from trainer.metrics.mahalanobis import FEATURE_SCORES
from trainer.run_folder import read_json

Batch = tuple[Tensor, Tensor]


def make_batch(seed: int, num_classes: int = 7) -> Batch:
    """Over-confident logits of 300 samples, right about two times in three."""
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(num_classes, (300,), generator=generator)
    logits = 4 * torch.randn(300, num_classes, generator=generator)
    logits[torch.arange(300), targets] += 6
    return logits, targets


def log_odds(confidences: list[float]) -> Tensor:
    """Logits of two classes that give the first these probabilities."""
    first = torch.tensor(confidences, dtype=torch.float64)
    return torch.stack([first.log(), (1 - first).log()], dim=1)


def test_metrics_of_four_samples_match_values_computed_by_hand() -> None:
    logits, targets = log_odds([0.9, 0.8, 0.7, 0.6]), torch.tensor([0, 0, 1, 0])

    metrics = compute_metrics(logits, targets)

    expected = {
        "accuracy": 0.75,
        "nll": -math.log(0.9 * 0.8 * 0.3 * 0.6) / 4,
        "brier_score": 2 * (0.1**2 + 0.2**2 + 0.7**2 + 0.4**2) / 4,
        "ece": (0.1 + 0.2 + 0.7 + 0.4) / 4,
        "l2_ece": math.sqrt((0.1**2 + 0.2**2 + 0.7**2 + 0.4**2) / 4),
        "mce": 0.7,
        # Two of the three right ones are surer than the wrong one.
        "misclassification_auroc_msp": 2 / 3,
        "misclassification_aupr_success_msp": (1 + 1 + 3 / 4) / 3,
        "misclassification_aupr_error_msp": 1 / 2,
        "misclassification_fpr_at_95_tpr_msp": 1.0,
        # Error rates of the surest one, two, three and four.
        "aurc_msp": (0 + 0 + 1 / 3 + 1 / 4) / 4,
        # The wrong one is kept at the last coverage and from halfway on within its own step.
        "augrc_msp": (1 + 1 / 2) / 4**2,
        "accuracy_rejecting_10_percent_msp": 3 / 4,
        "accuracy_rejecting_50_percent_msp": 1.0,
        "s99_share": 0.0,
        "s99_accuracy": None,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected)


def test_with_two_classes_both_certainties_have_the_same_ranking() -> None:
    metrics = compute_metrics(log_odds([0.9, 0.8, 0.7, 0.6]), torch.tensor([0, 0, 1, 0]))

    by_msp = {name[:-3]: value for name, value in metrics.items() if name.endswith("_msp")}
    by_entropy = {name[:-7]: value for name, value in metrics.items() if name.endswith("_entropy")}

    assert by_msp == pytest.approx(by_entropy)


def test_every_metric_is_in_the_record() -> None:
    logits, targets = make_batch(0)

    record = evaluate_predictions(logits, targets, make_batch(1))

    assert tuple(record) == STAGES
    assert all(set(METRICS) < set(metrics) for metrics in record.values())
    assert record["raw"]["ece"] == METRICS["ece"](logits, targets)


@pytest.mark.parametrize(("num_classes", "meaningful"), [(5, False), (6, True)])
def test_top_five_accuracy_needs_more_than_five_classes(
    num_classes: int,
    meaningful: bool,  # noqa: FBT001
) -> None:
    assert ("top_5_accuracy" in compute_metrics(*make_batch(0, num_classes))) is meaningful


def test_temperatures_are_fitted_on_the_validation_samples() -> None:
    validation = make_batch(1)

    record = evaluate_predictions(*make_batch(0), validation)

    by_nll = fit_temperature_by_nll(*validation)
    assert record["temperature_nll"]["temperature"] == by_nll.temperature
    assert record["temperature_nll"]["temperature_at_bound"] == 0
    assert record["temperature_ece"]["temperature"] == fit_temperature_by_ece(*validation)
    by_adaptive_ece = fit_temperature_by_adaptive_ece(*validation)
    assert record["temperature_adaptive_ece"]["temperature"] == by_adaptive_ece


def test_temperature_scaling_never_changes_accuracy_and_improves_its_criterion() -> None:
    batch = make_batch(0)

    record = evaluate_predictions(*batch, validation=batch)

    for name in ("accuracy", "top_5_accuracy"):
        assert len({metrics[name] for metrics in record.values()}) == 1
    nll = {stage: metrics["nll"] or 0 for stage, metrics in record.items()}
    assert nll["temperature_nll"] < min(value for name, value in nll.items() if name[-3:] != "nll")
    for name in ("ece", "adaptive_ece"):
        errors = {stage: metrics[name] or 0 for stage, metrics in record.items()}
        assert errors[f"temperature_{name}"] <= min(
            errors["temperature_ece"], errors["temperature_adaptive_ece"]
        )
        assert errors[f"temperature_{name}"] < errors["raw"]


def test_the_scaled_stage_has_the_metrics_of_logits_divided_by_the_temperature() -> None:
    logits, targets = make_batch(0)

    scaled = evaluate_predictions(logits, targets, make_batch(1))["temperature_ece"]

    temperature = scaled.pop("temperature")
    assert temperature is not None
    assert scaled == compute_metrics(logits.double() / temperature, targets)


def test_without_validation_samples_nothing_is_scaled() -> None:
    assert set(evaluate_predictions(*make_batch(0))) == {"raw"}


@pytest.mark.parametrize(("target", "error_rate"), [(0, 0), (1, 1)])
def test_without_both_correct_and_wrong_predictions_detection_has_no_value(
    target: int, error_rate: int
) -> None:
    metrics = compute_metrics(log_odds([0.9, 0.8]), torch.tensor([target, target]))

    detection = [value for name, value in metrics.items() if name.startswith("misclassif")]
    assert detection == [None] * 15
    assert metrics["aurc_msp"] == metrics["aurc_entropy"] == error_rate


def test_intervals_contain_their_metric() -> None:
    metrics = compute_metrics(*make_batch(0), Resampling(num_resamples=200))

    for name in ("accuracy", "nll", "brier_score"):
        low, value, high = (metrics[key] for key in (f"{name}_low", name, f"{name}_high"))
        assert low is not None
        assert value is not None
        assert high is not None
        assert low < value < high
    assert metrics["ece_low"] != metrics["ece_high"]


def test_logits_that_are_not_finite_are_refused() -> None:
    logits, targets = make_batch(0)
    logits[3] = float("nan")

    with pytest.raises(MetricError, match="row 3"):
        evaluate_predictions(logits, targets)


def test_less_certain_ood_samples_are_detected_by_every_score() -> None:
    certain, uncertain = 8 * torch.eye(3).repeat(4, 1), torch.eye(3)

    record = evaluate_ood(certain, uncertain)

    perfect = {"auroc": 1, "aupr_ood": 1, "aupr_id": 1, "fpr_at_95_tpr": 0, "fpr_at_95_tpr_id": 0}
    assert record == {
        "positive": "ood",
        "fpr_convention": "first",
        **dict.fromkeys(("msp", "entropy", "energy", "max_logit"), pytest.approx(perfect)),
    }


def test_scaled_ood_detection_is_that_of_scaled_logits_and_raw_numbers_keep_their_place() -> None:
    (id_logits, _), (ood_logits, _) = make_batch(0), make_batch(2)
    validation = make_batch(1)

    record = evaluate_ood(id_logits, ood_logits / 2, validation)

    names = ("msp", "entropy", "energy", "max_logit")
    assert tuple(record) == ("positive", "fpr_convention", *names, *STAGES[1:])
    temperature = fit_temperature_by_adaptive_ece(*validation)
    scaled = evaluate_ood(id_logits.double() / temperature, ood_logits.double() / 2 / temperature)
    assert record["temperature_adaptive_ece"] == {
        "temperature": temperature,
        **{name: scaled[name] for name in names},
    }
    raw = evaluate_ood(id_logits, ood_logits / 2)
    assert {name: record[name] for name in names} == {name: raw[name] for name in names}


def test_distances_are_a_score_beside_those_by_logits() -> None:
    (id_logits, _), (ood_logits, _) = make_batch(0), make_batch(2)
    known, other = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2.5, 9.0])
    distances = dict.fromkeys(FEATURE_SCORES, known), dict.fromkeys(FEATURE_SCORES, other)

    record = evaluate_ood(id_logits, ood_logits, None, Resampling(20), distances)
    curves = ood_curves(id_logits, ood_logits, "other", None, distances)

    # Of six pairs of samples, five are in order.
    for by in FEATURE_SCORES:
        assert record[by]["auroc"] == pytest.approx(5 / 6)
        assert record[by]["auroc_low"] <= 5 / 6 <= record[by]["auroc_high"]
    drawn = tuple(each.by for each in curves if each.detection == "other")
    assert drawn[-len(FEATURE_SCORES) :] == FEATURE_SCORES


def test_records_are_added_by_name_and_one_of_the_same_name_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "ood.json"

    for records in ({"a": {"x": 1}}, {"b": {"x": 2}}, {"a": {"x": 3}}):
        add_records(path, records)

    assert read_records(path) == {"a": {"x": 3}, "b": {"x": 2}}
    path.write_text("{")
    with pytest.raises(TrainingError, match="delete it, and evaluate again"):
        add_records(path, {"c": {}})


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    record = evaluate_predictions(*make_batch(0), make_batch(1))

    write_metrics(tmp_path / "metrics.json", record)

    assert read_metrics(tmp_path / "metrics.json") == record


def test_numbers_that_json_does_not_have_become_null(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"

    write_metrics(path, {"raw": {"nll": math.inf, "ece": math.nan, "x": [math.nan, 1.5]}})

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    json.loads(path.read_text(), parse_constant=refuse)
    assert read_json(path) == {"raw": {"nll": None, "ece": None, "x": [None, 1.5]}}


def test_an_infinite_nll_has_no_value() -> None:
    logits = torch.tensor([[0.0, float("-inf")], [1.0, 0.0]])

    metrics = compute_metrics(logits, torch.tensor([1, 0]))

    assert metrics["nll"] is None
    assert metrics["accuracy"] == 0.5


@pytest.mark.parametrize("text", ["{", "[1]", "{}", '{"raw": 3}'])
def test_a_damaged_record_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(text)

    with pytest.raises(TrainingError, match=r"metrics\.json"):
        read_metrics(path)


def test_a_missing_record_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"metrics\.json"):
        read_metrics(tmp_path / "metrics.json")
