"""Percentile intervals over resamples, beside resampling written out."""

import math
from dataclasses import asdict

import numpy as np
import pytest
import torch
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics import METRICS
from trainer.metrics.bootstrap import (
    Resampling,
    bootstrap_intervals,
    ece_interval,
    mean_interval,
    ood_intervals,
    paired_difference,
    paired_differences,
)
from trainer.metrics.calibration import ece, equal_width_bins
from trainer.metrics.ood import ood_detection
from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.proper_scores import accuracy, brier_score, nll
from trainer.metrics.weighted import WEIGHTED_METRICS


def test_the_ece_interval_is_that_of_resampling_and_binning_anew(
    batch: tuple[Tensor, Tensor],
) -> None:
    confidence, correct = confidence_and_correct(*batch)
    generator = torch.Generator().manual_seed(3)
    values = []
    for _ in range(1000):
        drawn = torch.randint(len(correct), (len(correct),), generator=generator)
        values.append(equal_width_bins(confidence[drawn], correct[drawn]).mean_gap)

    interval = ece_interval(confidence, correct)

    spread = np.std(values)
    assert interval.value == ece(*batch)
    assert interval.low == pytest.approx(np.quantile(values, 0.025), abs=0.3 * spread)
    assert interval.high == pytest.approx(np.quantile(values, 0.975), abs=0.3 * spread)


@pytest.mark.parametrize("num_bins", [1, 15])
def test_a_resample_of_every_sample_once_has_the_ece_itself(
    batch: tuple[Tensor, Tensor], monkeypatch: pytest.MonkeyPatch, num_bins: int
) -> None:
    class Everyone:
        def integers(self, num_samples: int, size: int) -> np.ndarray:
            return np.arange(num_samples)[:size]

    monkeypatch.setattr(np.random, "default_rng", lambda _: Everyone())

    interval = ece_interval(*confidence_and_correct(*batch), num_bins)

    assert interval.value == ece(*batch, num_bins)
    assert interval.low == pytest.approx(interval.value, rel=1e-12)
    assert interval.high == pytest.approx(interval.value, rel=1e-12)


def test_the_interval_of_a_mean_has_the_width_that_theory_gives() -> None:
    values = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    error = float(values.std()) / math.sqrt(2000)

    interval = mean_interval(values, Resampling(level=0.6827))

    assert interval.value == pytest.approx(float(values.mean()), rel=1e-5)
    assert interval.high - interval.low == pytest.approx(2 * error, rel=0.1)
    assert (interval.high + interval.low) / 2 == pytest.approx(interval.value, abs=0.2 * error)


def test_every_interval_holds_the_metric_of_its_name(batch: tuple[Tensor, Tensor]) -> None:
    intervals = bootstrap_intervals(*batch, Resampling(num_resamples=100))

    assert intervals["accuracy"].value == pytest.approx(accuracy(*batch))
    assert intervals["nll"].value == pytest.approx(nll(*batch))
    assert intervals["brier_score"].value == pytest.approx(brier_score(*batch))
    assert intervals["ece"].value == pytest.approx(ece(*batch))
    for name in ("accuracy", "nll", "brier_score"):
        assert intervals[name].low < intervals[name].value < intervals[name].high


@pytest.mark.parametrize("name", METRICS)
def test_an_interval_is_that_of_the_metric_of_drawn_samples(
    batch: tuple[Tensor, Tensor], name: str
) -> None:
    logits, targets = batch
    generator = np.random.default_rng(5)
    values = []
    for _ in range(40):
        drawn = np.sort(generator.integers(len(targets), size=len(targets)))
        values.append(METRICS[name](logits[drawn], targets[drawn]))

    interval = bootstrap_intervals(*batch, Resampling(40, level=0.8, seed=5), (name,))[name]

    assert interval.low == pytest.approx(np.quantile(values, 0.1), rel=1e-9)
    assert interval.high == pytest.approx(np.quantile(values, 0.9), rel=1e-9)


def test_a_metric_without_a_value_has_no_interval() -> None:
    intervals = bootstrap_intervals(torch.eye(3), torch.arange(3), Resampling(20))

    assert "misclassification_auroc_msp" not in intervals
    assert intervals["aurc_msp"].high == 0


def test_resamples_without_an_error_are_left_out_of_the_interval_of_the_auroc() -> None:
    logits, targets = torch.eye(4).repeat(5, 1), torch.arange(4).repeat(5)
    logits[0] = torch.tensor([0.0, 0.5, 0.0, 0.0])

    interval = bootstrap_intervals(logits, targets, Resampling(50))["misclassification_auroc_msp"]

    assert (interval.low, interval.value, interval.high) == (1, 1, 1)


def test_a_difference_is_that_of_both_models_on_the_same_drawn_samples(
    batch: tuple[Tensor, Tensor],
) -> None:
    logits, targets = batch
    other = logits + torch.randn(logits.shape, generator=torch.Generator().manual_seed(9))
    generator = np.random.default_rng(0)
    values = []
    for _ in range(60):
        drawn = np.sort(generator.integers(len(targets), size=len(targets)))
        values.append(
            METRICS["adaptive_ece"](other[drawn], targets[drawn])
            - METRICS["adaptive_ece"](logits[drawn], targets[drawn])
        )

    interval = paired_difference(
        "adaptive_ece", (other, targets), (logits, targets), Resampling(60, level=0.9)
    )

    difference = METRICS["adaptive_ece"](other, targets) - METRICS["adaptive_ece"](logits, targets)
    assert interval.value == pytest.approx(difference, rel=1e-9)
    assert interval.low == pytest.approx(np.quantile(values, 0.05), rel=1e-9)
    assert interval.high == pytest.approx(np.quantile(values, 0.95), rel=1e-9)


def test_a_model_does_not_differ_from_itself(batch: tuple[Tensor, Tensor]) -> None:
    differences = paired_differences(batch, batch, Resampling(20))

    assert differences.keys() == set(WEIGHTED_METRICS)
    assert {(each.low, each.value, each.high) for each in differences.values()} == {(0, 0, 0)}


def test_the_difference_of_similar_models_is_narrower_than_either_interval(
    batch: tuple[Tensor, Tensor],
) -> None:
    logits, targets = batch
    similar = logits + 0.1 * torch.randn(logits.shape, generator=torch.Generator().manual_seed(9))

    difference = paired_difference("nll", (similar, targets), batch)
    own = bootstrap_intervals(*batch, metrics=("nll",))["nll"]

    assert difference.high - difference.low < 0.2 * (own.high - own.low)


def test_an_ood_interval_is_that_of_id_and_ood_samples_drawn_apart(
    batch: tuple[Tensor, Tensor],
) -> None:
    id_logits, ood_logits = batch[0], batch[0][:90].round() / 2
    generator = np.random.default_rng(0)
    values = []
    for _ in range(40):
        drawn = [generator.integers(size, size=size) for size in (400, 90)]
        detection = ood_detection(id_logits[drawn[0]], ood_logits[drawn[1]], "entropy")
        values.append(list(asdict(detection).values()))

    intervals = ood_intervals(id_logits, ood_logits, "entropy", Resampling(40, level=0.9))

    low, high = np.quantile(values, [0.05, 0.95], axis=0)
    assert [each.low for each in intervals.values()] == pytest.approx(low.tolist())
    assert [each.high for each in intervals.values()] == pytest.approx(high.tolist())
    expected = asdict(ood_detection(id_logits, ood_logits, "entropy"))
    assert {name: each.value for name, each in intervals.items()} == pytest.approx(expected)


def test_models_of_different_samples_have_no_difference(batch: tuple[Tensor, Tensor]) -> None:
    logits, targets = batch

    with pytest.raises(MetricError, match=r"400 and 400 samples differ; .* same order"):
        paired_difference("nll", batch, (logits.flip(0), targets.flip(0)))
    with pytest.raises(MetricError, match="400 and 399 samples differ"):
        paired_difference("nll", batch, (logits[1:], targets[1:]))


def test_a_difference_without_a_value_is_refused(batch: tuple[Tensor, Tensor]) -> None:
    _, targets = batch
    perfect = 9 * torch.nn.functional.one_hot(targets, 7).double()

    with pytest.raises(MetricError, match="misclassification_auroc_msp has no value"):
        paired_difference("misclassification_auroc_msp", batch, (perfect, targets))


def test_an_unknown_metric_is_refused_by_name(batch: tuple[Tensor, Tensor]) -> None:
    with pytest.raises(MetricError, match=r"metrics acuracy are unknown; give some of accuracy, "):
        paired_difference("acuracy", batch, batch)


def test_the_same_seed_gives_the_same_interval_and_another_does_not(
    batch: tuple[Tensor, Tensor],
) -> None:
    predictions = confidence_and_correct(*batch)
    first, again, other = (
        ece_interval(*predictions, resampling=Resampling(num_resamples=50, seed=seed))
        for seed in (1, 1, 2)
    )

    assert first == again
    assert first != other


def test_a_higher_level_gives_a_wider_interval(batch: tuple[Tensor, Tensor]) -> None:
    predictions = confidence_and_correct(*batch)

    narrow = ece_interval(*predictions, resampling=Resampling(200, level=0.5))
    wide = ece_interval(*predictions, resampling=Resampling(200, level=0.9))

    assert wide.low < narrow.low < narrow.high < wide.high


def test_one_sample_has_an_interval_of_no_width() -> None:
    interval = ece_interval(torch.tensor([0.75]), torch.tensor([True]))

    assert (interval.low, interval.value, interval.high) == (0.25, 0.25, 0.25)


@pytest.mark.parametrize(("num_resamples", "level"), [(0, 0.95), (10, 0.0), (10, 95.0)])
def test_impossible_resampling_is_refused(num_resamples: int, level: float) -> None:
    with pytest.raises(MetricError, match=f"{num_resamples} resamples at level {level}"):
        Resampling(num_resamples, level)


def test_means_of_nothing_are_refused() -> None:
    with pytest.raises(MetricError, match=r"\(0,\)"):
        mean_interval(torch.zeros(0))
