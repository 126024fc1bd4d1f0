"""What a run says of how it learns each sample, beside plain loops over its predictions."""

import math

import numpy as np
import pytest
import torch
from accelerate import Accelerator

from trainer.training.dynamics import Dynamics


@pytest.fixture
def accelerator() -> Accelerator:
    return Accelerator(cpu=True)


def trained(
    predictions: list[list[list[float]]], labels: list[int], accelerator: Accelerator
) -> dict[str, list[float]]:
    """The columns after epochs in which each sample had these logits."""
    dynamics = Dynamics.of(len(labels))
    for epoch in predictions:
        for position in reversed(range(len(labels))):
            logits = torch.tensor([epoch[position]])
            dynamics.add(torch.tensor([position]), logits, torch.tensor([labels[position]]))
        dynamics.end_epoch(accelerator)
    return {name: values.tolist() for name, values in dynamics.columns().items()}


def test_margins_and_error_norms_are_the_means_of_plain_loops(accelerator: Accelerator) -> None:
    generator = np.random.default_rng(0)
    logits, labels = generator.normal(size=(4, 5, 3)), [0, 1, 2, 1, 0]

    found = trained(logits.tolist(), labels, accelerator)

    for sample, label in enumerate(labels):
        margins, norms = [], []
        for row in logits[:, sample]:
            margins.append(row[label] - max(np.delete(row, label)))
            errors = np.exp(row) / np.exp(row).sum() - np.eye(3)[label]
            norms.append(math.sqrt((errors**2).sum()))
        assert found["aum"][sample] == pytest.approx(-np.mean(margins), abs=1e-6)
        assert found["el2n"][sample] == pytest.approx(np.mean(norms), abs=1e-6)


def test_a_sample_is_forgotten_each_time_that_it_is_wrong_after_it_was_right(
    accelerator: Accelerator,
) -> None:
    right, wrong = [1.0, 0.0], [0.0, 1.0]
    always, lost, lost_twice, never = (
        [right] * 5,
        [right, right, wrong, wrong, right],
        [wrong, right, wrong, right, wrong],
        [wrong] * 5,
    )
    epochs = [list(each) for each in zip(always, lost, lost_twice, never, strict=True)]

    found = trained(epochs, [0] * 4, accelerator)

    assert found["forgetting"] == [0, 1, 2, 5]
    assert found["incorrectness"] == pytest.approx([0, 0.4, 0.6, 1])


def test_a_sample_that_no_epoch_had_has_no_numbers_and_one_drawn_twice_has_the_mean(
    accelerator: Accelerator,
) -> None:
    dynamics = Dynamics.of(2)
    twice = torch.tensor([[3.0, 0.0], [1.0, 0.0]])

    dynamics.add(torch.tensor([1, 1]), twice, torch.tensor([0, 0]))
    dynamics.end_epoch(accelerator)

    columns = dynamics.columns()
    assert columns["aum"].tolist() == pytest.approx([math.nan, -2.0], nan_ok=True)
    assert columns["el2n"].isnan().tolist() == [True, False]


def test_a_state_that_is_restored_within_an_epoch_goes_on_with_it(
    accelerator: Accelerator,
) -> None:
    logits, labels = torch.randn(6, 3), torch.arange(6) % 3
    whole, first, second = (Dynamics.of(6) for _ in range(3))
    whole.add(torch.arange(6), logits, labels)
    first.add(torch.arange(3), logits[:3], labels[:3])

    second.load(first.state(accelerator), accelerator)
    second.add(torch.arange(3, 6), logits[3:], labels[3:])

    for each in (whole, second):
        each.end_epoch(accelerator)
    assert {k: v.tolist() for k, v in second.columns().items()} == {
        k: v.tolist() for k, v in whole.columns().items()
    }
