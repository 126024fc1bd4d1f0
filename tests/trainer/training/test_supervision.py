"""Supervision is of tensors alone, and follows samples into batches and mixtures."""

import subprocess
import sys

import pytest
import torch

from trainer.training.supervision import TRUSTED, Supervision

CPU = torch.device("cpu")


@pytest.mark.slow
def test_the_objective_loads_nothing_that_reads_files_or_runs_training() -> None:
    script = """
import sys
import trainer.training.objective
print(*{"pyarrow", "PIL", "pydantic", "accelerate"} & {*sys.modules})
"""

    command = [sys.executable, "-c", script]
    loaded = subprocess.run(command, capture_output=True, check=True, text=True)  # noqa: S603

    assert loaded.stdout.split() == []


def test_a_batch_has_the_supervision_of_its_samples() -> None:
    supervision = Supervision(
        torch.tensor([0.5, 1.0, 1.5]), torch.tensor([0.25, 0.5, 1.0]), torch.tensor([2, 0, 1])
    )

    weights, shares, others = vars(supervision.of(torch.tensor([2, 0]), CPU)).values()

    assert weights.tolist() == [1.5, 0.5]
    assert shares.tolist() == [1.0, 0.25]
    assert others.tolist() == [1, 2]


def test_what_a_supervision_lacks_its_batches_lack_too() -> None:
    positions = torch.tensor([1, 0])

    assert TRUSTED.of(positions, CPU) == TRUSTED
    assert Supervision(shares=torch.ones(2)).of(positions, CPU).others is None


def test_a_mixed_sample_has_the_mean_weight_of_its_parts() -> None:
    supervision = Supervision(weights=torch.tensor([2.0, 1.0, 0.0], dtype=torch.float64))
    shares = torch.tensor([[0.75, 0.25, 0.0], [0.5, 0.0, 0.5]])

    mixed = supervision.mixed(shares)

    assert mixed.weights is not None
    assert mixed.weights.tolist() == [1.75, 1.0]
    assert TRUSTED.mixed(shares) is TRUSTED
