"""The training loop compared with plain PyTorch, and its calls of hooks and callbacks."""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from accelerate import Accelerator
from torch import Tensor, nn
from torch.nn import functional as F

from trainer.config import Recipe
from trainer.data import Splits, open_splits
from trainer.training.loop import TrainingCallbacks, train
from trainer.training.plan import plan_epoch, rate_at
from trainer.training.state import TrainState, make_train_state
from trainer.training.step import TrainingData

MakeRecipe = Callable[..., Recipe]
MakeSplits = Callable[[Recipe], Splits]

CPU = torch.device("cpu")


class Recorder:
    """A loss with every hook that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[Any, ...]] = []

    def __call__(self, logits: Tensor, targets: Tensor) -> Tensor:
        self.calls.append(("loss", len(logits), targets.tolist()))
        return F.cross_entropy(logits, targets, reduction="none")

    def before_epoch(self, epoch: int, epochs: int) -> None:
        self.calls.append(("before_epoch", epoch, epochs))

    def before_batch(self, sample_ids: Sequence[str]) -> None:
        self.calls.append(("before_batch", list(sample_ids)))

    def after_batch(self, correct: Tensor) -> None:
        self.calls.append(("after_batch", correct.dtype, correct.shape))

    def after_epoch(self, confidences: Tensor, correct: Tensor) -> None:
        self.calls.append(("after_epoch", confidences.shape, correct.shape))


class CallbackRecorder:
    """Callbacks that record every call, and stop after some steps or never."""

    def __init__(self, stop_after: float = math.inf) -> None:
        self.steps: list[int] = []
        self.epochs: list[dict[str, Any]] = []
        self.saves: list[int] = []
        self.stop_after = stop_after

    def callbacks(self) -> TrainingCallbacks:
        return TrainingCallbacks(
            self.steps.append,
            self.epochs.append,
            lambda: self.saves.append(len(self.steps)),
            lambda: len(self.steps) >= self.stop_after,
        )


def data_of(splits: Splits, weights: Tensor | None = None) -> TrainingData:
    return TrainingData(splits.train, weights, splits.validation)


def start(recipe: Recipe, accelerator: Accelerator) -> tuple[TrainState, Splits]:
    splits = open_splits(recipe.data, 0, CPU)
    return make_train_state(recipe, 0, splits, accelerator), splits


def naive_training(
    model: nn.Module, splits: Splits, recipe: Recipe, weights: Tensor | None = None
) -> None:
    """SGD with momentum, weight decay, clipping and an entropy term, in plain PyTorch."""
    (inputs,) = splits.train.inputs.batches([torch.arange(len(splits.train))], None)
    settings, rule = recipe.training, recipe.optimiser
    parameters = list(model.parameters())
    velocities = [torch.zeros_like(parameter) for parameter in parameters]
    plans = [
        plan_epoch(len(splits.train), settings.batch_size, 0, epoch)
        for epoch in range(settings.epochs)
    ]
    batches = [batch for plan in plans for batch in plan]
    for step, batch in enumerate(batches):
        logits = model(inputs[batch])
        losses = F.cross_entropy(logits, splits.train.labels[batch], reduction="none")
        probabilities = logits.softmax(1)
        entropy = -(probabilities * probabilities.log()).sum(1)
        weight = 1 if weights is None else weights[batch].float()
        losses = losses - recipe.regulariser.alpha * weight * entropy
        loss = losses.mean() if settings.reduction == "mean" else losses.sum()
        gradients = torch.autograd.grad(loss, parameters)
        length = math.sqrt(sum(float(gradient.square().sum()) for gradient in gradients))
        shrink = min(1, (rule.gradient_clip or math.inf) / length)
        rate = rate_at(step, len(batches), settings.epochs, recipe.schedule) * rule.learning_rate
        with torch.no_grad():
            for parameter, velocity, gradient in zip(
                parameters, velocities, gradients, strict=True
            ):
                velocity *= rule.momentum
                velocity += shrink * gradient + rule.weight_decay * parameter
                parameter -= rate * velocity


def assert_same_parameters(model: nn.Module, reference: nn.Module) -> None:
    for value, expected in zip(model.parameters(), reference.parameters(), strict=True):
        torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "tables",
    [
        {},
        {"optimiser": {"learning_rate": 0.1, "weight_decay": 0.01, "momentum": 0.0}},
        {"training": {"reduction": "sum"}, "optimiser": {"gradient_clip": 2.0}},
        {"schedule": {"name": "one_cycle", "warmup": 0.3}},
        {"regulariser": {"alpha": 0.3}},
        {"training": {"batch_size": 100}},
        {"training": {"gradient_accumulation": 3}, "optimiser": {"gradient_clip": 0.5}},
        {"training": {"gradient_accumulation": 50, "reduction": "sum"}},
    ],
    ids=["momentum", "decay", "sum", "schedule", "entropy", "one-batch", "parts", "single-samples"],
)
def test_training_matches_plain_pytorch(
    tables: dict[str, dict[str, Any]], probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(**tables)
    state, splits = start(recipe, accelerator)
    reference = copy.deepcopy(state.model)

    train(state, data_of(splits), recipe, 0, accelerator, CallbackRecorder().callbacks())
    naive_training(reference, splits, recipe)

    assert_same_parameters(state.model, reference)


def test_every_weight_reaches_its_own_sample(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(regulariser={"alpha": 0.5})
    state, splits = start(recipe, accelerator)
    reference, mixed_up = copy.deepcopy(state.model), copy.deepcopy(state.model)
    weights = torch.rand(len(splits.train), generator=torch.Generator().manual_seed(0)).double()

    train(state, data_of(splits, weights), recipe, 0, accelerator, CallbackRecorder().callbacks())
    naive_training(reference, splits, recipe, weights)
    naive_training(mixed_up, splits, recipe, weights.roll(1))

    assert_same_parameters(state.model, reference)
    with pytest.raises(AssertionError):
        assert_same_parameters(state.model, mixed_up)


def test_clipping_binds_where_the_gradient_is_longer(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    rule = {"gradient_clip": 0.01, "momentum": 0.0, "learning_rate": 1.0}
    recipe = probe_recipe(
        optimiser=rule, schedule={"name": "constant"}, training={"epochs": 1, "batch_size": 100}
    )
    state, splits = start(recipe, accelerator)
    before = [parameter.detach().clone() for parameter in state.model.parameters()]

    train(state, data_of(splits), recipe, 0, accelerator, CallbackRecorder().callbacks())

    moved = [
        (parameter.detach() - old).square().sum()
        for parameter, old in zip(state.model.parameters(), before, strict=True)
    ]
    assert math.sqrt(sum(map(float, moved))) == pytest.approx(0.01, rel=1e-3)


def test_the_record_of_an_epoch_is_of_its_training_samples_as_they_were_seen(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(training={"epochs": 1, "batch_size": 100})
    state, splits = start(recipe, accelerator)
    (inputs,) = splits.train.inputs.batches([torch.arange(len(splits.train))], None)
    logits, targets = state.model(inputs).detach(), splits.train.labels
    recorder = CallbackRecorder()

    train(state, data_of(splits), recipe, 0, accelerator, recorder.callbacks())

    (record,) = recorder.epochs
    assert record["train_loss"] == pytest.approx(float(F.cross_entropy(logits, targets)))
    right = float((logits.argmax(1) == targets).double().mean())
    assert record["train_accuracy"] == pytest.approx(right)
    assert record["learning_rate"] == pytest.approx(0.05)
    assert state.progress.history == [record]


def test_the_moving_average_follows_the_parameters_and_is_evaluated(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(training={"ema_decay": 0.7})
    plain, splits = start(probe_recipe(), accelerator)
    averaged, _ = start(recipe, accelerator)
    expected: list[Tensor] = []
    epochs = CallbackRecorder()

    def follow(_samples: int) -> None:
        now = [parameter.detach().clone() for parameter in plain.model.parameters()]
        # The average starts as the parameters after the first step.
        expected[:] = [0.7 * old + 0.3 * new for old, new in zip(expected or now, now, strict=True)]

    callbacks = replace(CallbackRecorder().callbacks(), on_step=follow)
    train(plain, data_of(splits), probe_recipe(), 0, accelerator, callbacks)
    train(averaged, data_of(splits), recipe, 0, accelerator, epochs.callbacks())

    final = averaged.final_model(accelerator)
    for value, average in zip(final.parameters(), expected, strict=True):
        torch.testing.assert_close(value.detach(), average)
    assert splits.validation is not None
    (inputs,) = splits.validation.inputs.batches([torch.arange(18)], None)
    nll = F.cross_entropy(final(inputs).detach(), splits.validation.labels)
    assert epochs.epochs[-1]["validation_nll"] == pytest.approx(float(nll), rel=1e-5)
    assert_same_parameters(averaged.model, plain.model)


def test_the_hooks_of_a_loss_are_called_as_documented(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(training={"epochs": 2, "batch_size": 40})
    state, splits = start(recipe, accelerator)
    recorder = Recorder()
    state = replace(state, objective=replace(state.objective, loss=recorder))
    expected: list[tuple[Any, ...]] = []
    for epoch in range(2):
        expected.append(("before_epoch", epoch, 2))
        for batch in plan_epoch(72, 40, seed=0, epoch=epoch):
            ids = [splits.train.sample_ids[position] for position in batch]
            expected.append(("before_batch", ids))
            expected.append(("loss", 36, splits.train.labels[batch].tolist()))
            expected.append(("after_batch", torch.bool, (36,)))
        expected.append(("after_epoch", (18,), (18,)))

    train(state, data_of(splits), recipe, 0, accelerator, CallbackRecorder().callbacks())

    assert recorder.calls == expected


def test_the_parts_of_a_batch_are_computed_one_after_another_and_reported_together(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(training={"epochs": 1, "batch_size": 100, "gradient_accumulation": 2})
    state, splits = start(recipe, accelerator)
    recorder = Recorder()
    state = replace(state, objective=replace(state.objective, loss=recorder))
    (batch,) = plan_epoch(72, 100, seed=0, epoch=0)
    ids = [splits.train.sample_ids[position] for position in batch]
    labels = splits.train.labels[batch].tolist()

    train(state, data_of(splits), recipe, 0, accelerator, CallbackRecorder().callbacks())

    assert recorder.calls[1:-1] == [
        ("before_batch", ids[:36]),
        ("loss", 36, labels[:36]),
        ("before_batch", ids[36:]),
        ("loss", 36, labels[36:]),
        ("before_batch", ids),
        ("after_batch", torch.bool, (72,)),
    ]


def test_a_stop_saves_at_once_and_a_finished_epoch_is_not_repeated(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(training={"batch_size": 24})
    state, splits = start(recipe, accelerator)
    data = data_of(splits)
    first, second, third = (
        CallbackRecorder(stop_after=2),
        CallbackRecorder(stop_after=1),
        CallbackRecorder(),
    )

    finished = [
        train(state, data, recipe, 0, accelerator, recorder.callbacks())
        for recorder in (first, second, third)
    ]

    assert finished == [False, False, True]
    assert (first.saves, second.saves, third.saves) == ([2], [1], [3, 6])
    assert [len(recorder.epochs) for recorder in (first, second, third)] == [0, 1, 2]
    assert first.steps + second.steps + third.steps == [24] * 9


def test_checkpoints_are_written_at_the_interval_and_at_the_end(
    probe_recipe: MakeRecipe, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(training={"epochs": 5, "batch_size": 100, "checkpoint_every": 2})
    state, splits = start(recipe, accelerator)
    recorder = CallbackRecorder()

    train(state, data_of(splits), recipe, 0, accelerator, recorder.callbacks())

    assert recorder.saves == [2, 4, 5]
