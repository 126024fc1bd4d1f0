"""The best epoch: which one it is, and that its parameters are kept."""

from typing import get_args

import pytest
import torch
from torch import nn

from trainer.config import BestBy
from trainer.training.loop import VALIDATION_METRICS
from trainer.training.state import HIGHER_IS_BETTER, BestEpoch


@pytest.mark.parametrize(
    ("by", "values", "expected"),
    [
        ("accuracy", [0.5, 0.9, 0.9, 0.7], 2),
        ("nll", [0.5, 0.2, 0.2, 0.7], 2),
        ("ece", [0.1, 0.2, 0.3, 0.05], 4),
        ("adaptive_ece", [0.1, 0.2, 0.3, 0.4], 1),
    ],
)
def test_the_best_epoch_is_the_first_of_the_best_value(
    by: BestBy, values: list[float], expected: int
) -> None:
    model, best = nn.Linear(1, 1), BestEpoch(by)

    for epoch, value in enumerate(values, start=1):
        nn.init.constant_(model.weight, epoch)
        best.update(epoch, value, model)

    assert (best.epoch, best.value) == (expected, values[expected - 1])
    assert torch.equal(best.parameters["weight"], torch.full((1, 1), float(expected)))


def test_every_validation_metric_can_decide() -> None:
    assert set(get_args(BestBy)) == set(HIGHER_IS_BETTER) == set(VALIDATION_METRICS)
