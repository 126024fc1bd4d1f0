"""Accuracy, NLL and Brier score beside references and PyTorch's own functions."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from difficulty_service.base.errors import MetricError
from trainer.metrics import METRICS
from trainer.metrics.proper_scores import (
    accuracy,
    brier_score,
    nll,
    top_5_accuracy,
    top_k_accuracy,
)

Batches = dict[str, tuple[Tensor, Tensor]]
Values = dict[str, dict[str, float]]


@pytest.mark.parametrize("name", "abxhs")
def test_proper_scores_are_those_of_the_references(
    golden_batches: Batches, golden_metrics: Values, name: str
) -> None:
    logits, targets = golden_batches[name]

    expected = golden_metrics[name]
    assert nll(logits, targets) == pytest.approx(expected["nll"], rel=1e-9)
    assert brier_score(logits, targets) == pytest.approx(expected["brier_sumK_mean"], rel=1e-9)
    assert accuracy(logits, targets) == pytest.approx(expected["acc"], rel=1e-12)


def test_brier_score_of_certain_errors_is_two() -> None:
    assert brier_score(torch.tensor([[1e4, 0.0, 0.0]]), torch.tensor([1])) == 2.0


def test_top_k_accuracy_counts_targets_among_the_k_largest(batch: tuple[Tensor, Tensor]) -> None:
    logits, targets = batch
    among = (logits.topk(5).indices == targets[:, None]).any(dim=1)

    assert top_5_accuracy(logits, targets) == pytest.approx(float(among.float().mean()))


def test_top_1_accuracy_is_the_accuracy_even_with_ties() -> None:
    logits = torch.zeros(3, 4)
    targets = torch.tensor([0, 1, 3])

    assert top_k_accuracy(logits, targets, k=1) == accuracy(logits, targets) == pytest.approx(1 / 3)


def test_top_5_accuracy_with_five_classes_is_one() -> None:
    assert top_5_accuracy(torch.randn(9, 5), torch.arange(9) % 5) == 1.0


def test_top_0_accuracy_is_refused() -> None:
    with pytest.raises(MetricError, match="top-0"):
        top_k_accuracy(torch.zeros(1, 2), torch.tensor([0]), k=0)


def test_nll_is_the_mean_cross_entropy(batch: tuple[Tensor, Tensor]) -> None:
    logits, targets = batch

    assert nll(logits, targets) == pytest.approx(float(F.cross_entropy(logits.double(), targets)))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_metrics_take_logits_of_any_precision_and_shift(
    batch: tuple[Tensor, Tensor], metric: str, dtype: torch.dtype
) -> None:
    logits, targets = batch[0].to(dtype), batch[1]

    value = METRICS[metric](logits.requires_grad_(), targets)

    assert value == pytest.approx(METRICS[metric](logits.double() + 300, targets), abs=1e-9)
