"""What a run notes of each epoch, compared with plain loops over samples and numbers."""

import copy
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.config import Recipe
from trainer.data import open_splits
from trainer.training.loop import TrainingCallbacks, train
from trainer.training.observations import (
    gradient_norm,
    last_layer,
    observe_predictions,
    weight_norm,
)
from trainer.training.plan import plan_epoch, rate_at
from trainer.training.state import make_train_state
from trainer.training.step import GradientStep, TrainingData


def naive_observations(logits: Tensor, targets: Tensor) -> dict[str, float | None]:
    """Sample by sample, with logarithms of probabilities."""
    values: dict[str, list[float]] = {"entropy": []}
    for row, target in zip(logits.tolist(), targets.tolist(), strict=True):
        total = sum(map(math.exp, row))
        probabilities = [math.exp(each) / total for each in row]
        ending = "right" if row.index(max(row)) == target else "wrong"
        nll = -math.log(probabilities[target])
        entropy = -sum(each * math.log(each) for each in probabilities)
        values["entropy"].append(entropy)
        values.setdefault(f"nll_{ending}", []).append(nll)
        values.setdefault(f"entropy_{ending}", []).append(entropy)
    return {name: sum(numbers) / len(numbers) for name, numbers in values.items()}


def test_nll_and_entropy_are_means_over_the_right_and_over_the_wrong_samples() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(200, 7, generator=generator, dtype=torch.float64)
    targets = torch.where(torch.arange(200) % 3 == 0, logits.argmax(1), torch.arange(200) % 7)

    observed = observe_predictions(logits, targets)

    assert observed == pytest.approx(naive_observations(logits, targets), rel=1e-12)
    assert len(observed) == 5


def test_without_wrong_samples_their_means_are_none() -> None:
    observed = observe_predictions(torch.eye(3), torch.arange(3))

    assert observed["nll_wrong"] is None
    assert observed["entropy_wrong"] is None
    assert observed["nll_right"] == pytest.approx(math.log(math.e + 2) - 1)


def test_the_last_layer_is_the_linear_one_that_was_built_last() -> None:
    first, last = nn.Linear(4, 3), nn.Linear(3, 2)

    assert last_layer(nn.Sequential(first, nn.ReLU(), last, nn.Dropout())) is last
    assert last_layer(nn.Conv2d(3, 2, 1)) is None


def test_norms_are_roots_of_sums_of_squares_without_the_bias() -> None:
    layer = nn.Linear(5, 3)
    layer(torch.randn(4, 5)).square().sum().backward()
    assert layer.weight.grad is not None
    weights = [value for row in layer.weight.tolist() for value in row]
    slopes = [value for row in layer.weight.grad.tolist() for value in row]

    norm, counted = gradient_norm(layer).tolist()

    assert weight_norm(layer) == pytest.approx(math.sqrt(sum(each**2 for each in weights)))
    assert norm == pytest.approx(math.sqrt(sum(each**2 for each in slopes)))
    assert counted == 1


@pytest.mark.parametrize("slope", [None, math.inf, math.nan])
def test_a_gradient_that_is_missing_or_not_finite_does_not_count(slope: float | None) -> None:
    layer = nn.Linear(2, 2)
    layer.weight.grad = None if slope is None else torch.full((2, 2), slope)

    assert gradient_norm(layer).tolist() == [0, 0]


def test_a_model_without_a_linear_layer_has_no_gradient_norm() -> None:
    assert gradient_norm(None).tolist() == [0, 0]


def test_a_step_shows_its_gradients_to_whoever_observes_before_it_frees_them(
    probe_recipe: Callable[..., Recipe], accelerator: Accelerator
) -> None:
    recipe = probe_recipe(optimiser={"gradient_clip": 0.01}, training={"reduction": "sum"})
    splits = open_splits(recipe.data, 0, torch.device("cpu"))
    state = make_train_state(recipe, 0, splits, accelerator)
    data = TrainingData(splits.train, None, None)
    batch = torch.arange(8)
    (inputs,) = splits.train.inputs.batches([batch], None)
    weight, bias = state.model.parameters()
    loss = F.cross_entropy(state.model(inputs), splits.train.labels[batch], reduction="sum")
    (slope,) = torch.autograd.grad(loss, bias)

    def gradient_of_bias() -> Tensor:
        assert bias.grad is not None
        return bias.grad.clone()

    total, _, *observed = GradientStep(state, data, recipe, accelerator, gradient_of_bias).take(
        batch, batch, inputs
    )
    unobserved = GradientStep(state, data, recipe, accelerator).take(batch, batch, inputs)

    torch.testing.assert_close(total, loss.detach())
    torch.testing.assert_close(torch.stack(observed), slope)
    assert unobserved.shape == (2,)
    assert weight.grad is None
    assert bias.grad is None


def test_the_record_has_the_mean_norm_of_the_last_layers_gradient_before_it_is_clipped(
    probe_recipe: Callable[..., Recipe], accelerator: Accelerator
) -> None:
    recipe = probe_recipe(
        optimiser={"gradient_clip": 0.01, "momentum": 0.0, "weight_decay": 0.0},
        training={"epochs": 1, "batch_size": 30},
    )
    splits = open_splits(recipe.data, 0, torch.device("cpu"))
    state = make_train_state(recipe, 0, splits, accelerator)
    data = TrainingData(splits.train, None, splits.validation)
    records: list[dict[str, Any]] = []
    callbacks = TrainingCallbacks(lambda _: None, records.append, lambda: None, lambda: False)
    model = copy.deepcopy(state.model)

    train(state, data, recipe, 0, accelerator, callbacks)

    (inputs,) = splits.train.inputs.batches([torch.arange(len(splits.train))], None)
    norms, plan = [], plan_epoch(len(splits.train), 30, 0, 0)
    weight, bias = model.parameters()
    for step, batch in enumerate(plan):
        loss = F.cross_entropy(model(inputs[batch]), splits.train.labels[batch])
        slope, of_bias = torch.autograd.grad(loss, (weight, bias))
        norms.append(float(slope.norm()))
        shrink = 0.01 / math.hypot(norms[-1], float(of_bias.norm()))
        rate = 0.05 * rate_at(step, len(plan), 1, recipe.schedule)
        with torch.no_grad():
            weight -= rate * shrink * slope
            bias -= rate * shrink * of_bias
    (record,) = records
    assert record["norm_last_gradient"] == pytest.approx(sum(norms) / len(norms), rel=1e-4)
    assert record["norm_last_weights"] == pytest.approx(float(weight.detach().norm()), rel=1e-4)
