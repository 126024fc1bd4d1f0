"""Metrics of weighted samples are those of the samples repeated."""

import numpy as np
import pytest
import torch
from torch import Tensor

from trainer.evaluation.record import compute_metrics
from trainer.metrics.weighted import WEIGHTED_METRICS, weighted_metrics

Batch = tuple[Tensor, Tensor]
NUM_RESAMPLES = 6


def make_batch(kind: str) -> Batch:
    """Logits right about two times in three; "tied" ones have few values."""
    generator = torch.Generator().manual_seed(1)
    num_samples, num_classes = {"few": (23, 3), "many classes": (150, 40)}.get(kind, (200, 7))
    targets = torch.randint(num_classes, (num_samples,), generator=generator)
    logits = 2 * torch.randn(num_samples, num_classes, generator=generator)
    logits[torch.arange(num_samples), targets] += 3
    return (logits.round() if kind == "tied" else logits), targets


def draw_counts(num_samples: int) -> np.ndarray:
    generator = np.random.default_rng(2)
    drawn = generator.integers(num_samples, size=(NUM_RESAMPLES, num_samples))
    return np.array([np.bincount(row, minlength=num_samples) for row in drawn], dtype=np.float64)


@pytest.mark.parametrize("kind", ["usual", "few", "many classes", "tied"])
def test_every_metric_is_that_of_the_samples_repeated(kind: str) -> None:
    logits, targets = make_batch(kind)
    counts = draw_counts(len(targets))

    values = weighted_metrics(logits, targets, WEIGHTED_METRICS)(counts)

    for resample, row in enumerate(counts):
        repeated = torch.from_numpy(np.repeat(np.arange(len(row)), row.astype(int)))
        expected = compute_metrics(logits[repeated], targets[repeated])
        # Three classes have no top-5 accuracy in a record.
        assert expected.keys() == values.keys() - (
            {"top_5_accuracy"} if kind == "few" else set[str]()
        )
        for name, value in expected.items():
            weighted = float(values[name][resample])
            assert weighted == pytest.approx(
                np.nan if value is None else value, rel=1e-9, abs=1e-12, nan_ok=True
            ), name


@pytest.mark.parametrize("name", "xs")
def test_saturated_and_tied_logits_have_the_metrics_of_the_samples_repeated(
    golden_batches: dict[str, Batch], name: str
) -> None:
    logits, targets = golden_batches[name]
    counts = draw_counts(len(targets))

    values = weighted_metrics(logits, targets, WEIGHTED_METRICS)(counts)

    for resample, row in enumerate(counts):
        repeated = torch.from_numpy(np.repeat(np.arange(len(row)), row.astype(int)))
        # The NLL of a target without probability is infinite, and has no weighted mean.
        for metric, value in compute_metrics(logits[repeated], targets[repeated]).items():
            assert value is None or float(values[metric][resample]) == pytest.approx(
                value, rel=1e-9, abs=1e-12
            ), metric


def test_a_score_of_which_no_sample_was_drawn_makes_no_corner_of_a_curve() -> None:
    logits = torch.stack([torch.arange(1.0, 41.0), torch.zeros(40)], dim=1).repeat(3, 1) / 10
    targets = (torch.arange(120) < 40).long()  # a third of each score is wrong
    counts = np.tile([0.0, 2.0], (1, 60))

    values = weighted_metrics(logits, targets, WEIGHTED_METRICS)(counts)

    drawn = torch.from_numpy(np.repeat(np.arange(120), counts[0].astype(int)))
    expected = compute_metrics(logits[drawn], targets[drawn])[
        "misclassification_fpr_at_95_tpr_crl_msp"
    ]
    assert values["misclassification_fpr_at_95_tpr_crl_msp"] == [expected] == [1.0]


def test_only_the_metrics_asked_for_are_computed() -> None:
    logits, targets = make_batch("usual")

    values = weighted_metrics(logits, targets, ("ece", "aurc_msp"))(np.ones((2, 200)))

    assert values.keys() == {"ece", "aurc_msp"}


def test_without_errors_detection_has_no_value_and_selection_has() -> None:
    values = weighted_metrics(torch.eye(3), torch.arange(3), WEIGHTED_METRICS)(np.ones((1, 3)))

    undefined = {name for name, value in values.items() if np.isnan(value[0])}
    assert undefined == {
        "s99_accuracy",
        *(name for name in WEIGHTED_METRICS if name.startswith("misclassification")),
    }
