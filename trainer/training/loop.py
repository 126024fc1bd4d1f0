"""Epochs of gradient steps for any objective; knows no loss and no model by name."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from difficulty_service.base.errors import TrainingError
from trainer.config import Recipe
from trainer.losses import call_hook
from trainer.metrics import METRICS
from trainer.metrics.predictions import confidence_and_correct
from trainer.training.accelerator import any_process, predict_split, share_of_process
from trainer.training.observations import (
    gradient_norm,
    last_layer,
    observe_predictions,
    weight_norm,
)
from trainer.training.plan import (
    Purpose,
    draw_augmentation,
    plan_by_difficulty,
    plan_epoch,
    rate_at,
    seed_of,
)
from trainer.training.state import TrainingProgress, TrainState
from trainer.training.step import GradientStep, TrainingData

STEPS_BETWEEN_CHECKS = 20
"""Reading a number from a GPU, or from another process, waits for it; so not at every step."""

VALIDATION_METRICS = ("accuracy", "nll", "ece", "adaptive_ece")


@dataclass(frozen=True)
class TrainingCallbacks:
    """Functions that the loop calls."""

    on_step: Callable[[int], None]
    on_epoch: Callable[[dict[str, Any]], None]
    save: Callable[[], None]
    should_stop: Callable[[], bool]


def train(
    state: TrainState,
    data: TrainingData,
    recipe: Recipe,
    seed: int,
    accelerator: Accelerator,
    callbacks: TrainingCallbacks,
) -> bool:
    """Trains until the last epoch, or until a callback stops it; returns whether it is finished."""
    progress, settings = state.progress, recipe.training
    while progress.epoch < settings.epochs:
        call_hook(state.objective.loss, "before_epoch", progress.epoch, settings.epochs)
        if not _train_epoch(state, data, recipe, seed, accelerator, callbacks):
            callbacks.save()
            return False
        record = _end_epoch(state, data, recipe, accelerator)
        callbacks.on_epoch(record)
        is_last = progress.epoch == settings.epochs
        stopped = not is_last and any_process(callbacks.should_stop(), accelerator)
        if is_last or stopped or progress.epoch % settings.checkpoint_every == 0:
            callbacks.save()
        if stopped:
            return False
    return True


def _train_epoch(
    state: TrainState,
    data: TrainingData,
    recipe: Recipe,
    seed: int,
    accelerator: Accelerator,
    callbacks: TrainingCallbacks,
) -> bool:
    """Takes the remaining steps of an epoch; returns False when stopped before its end."""
    progress, samples = state.progress, data.train
    plan = _plan(data, recipe, seed, progress.epoch)
    shares = [share_of_process(batch, accelerator) for batch in plan[progress.step :]]
    draws = None
    if recipe.data.kind == "images" and recipe.data.augmentation != "none":
        draws = draw_augmentation(len(samples), seed, progress.epoch)
    layer = last_layer(accelerator.unwrap_model(state.model))
    step = GradientStep(state, data, recipe, accelerator, partial(gradient_norm, layer))
    dropout_seed = seed_of(seed, Purpose.DROPOUT, progress.epoch, accelerator.process_index)
    sums: list[Tensor] = []
    began, stopped = time.perf_counter(), False
    state.model.train()
    for batch, share, inputs in zip(
        plan[progress.step :], shares, samples.inputs.batches(shares, draws), strict=True
    ):
        _set_rate(state, recipe, progress.epoch * len(plan) + progress.step, len(plan))
        torch.manual_seed((dropout_seed + progress.step) % 2**63)
        sums.append(step.take(batch, share, inputs))
        progress.step += 1
        callbacks.on_step(len(batch))
        is_checked = progress.step % STEPS_BETWEEN_CHECKS == 0
        if progress.step < len(plan) and (is_checked or accelerator.num_processes == 1):
            stopped = any_process(callbacks.should_stop(), accelerator)
        if is_checked or stopped or progress.step == len(plan):
            _add_sums(sums, progress, accelerator)
            sums.clear()
        if stopped:
            break
    progress.seconds += time.perf_counter() - began
    return not stopped


def _plan(data: TrainingData, recipe: Recipe, seed: int, epoch: int) -> list[Tensor]:
    """The batches of one epoch, in the order of the recipe."""
    samples, settings = data.train, recipe.training
    if data.difficulty is None:
        return plan_epoch(len(samples), settings.batch_size, seed, epoch, samples.groups)
    return plan_by_difficulty(
        data.difficulty, settings.batch_size, seed, epoch, settings.epochs, recipe.sampling
    )


def _end_epoch(
    state: TrainState, data: TrainingData, recipe: Recipe, accelerator: Accelerator
) -> dict[str, Any]:
    """Evaluates the validation samples, updates the loss and moves on to the next epoch."""
    progress = state.progress
    num_samples = len(data.train)
    record: dict[str, Any] = {
        "epoch": progress.epoch + 1,
        "learning_rate": state.optimiser.param_groups[0]["lr"],
        "train_loss": progress.loss / num_samples,
        "train_accuracy": progress.correct / num_samples,
        "seconds": progress.seconds,
        "samples_per_second": num_samples / progress.seconds,
    }
    model = state.final_model(accelerator)
    record |= _norms(progress, model)
    if data.validation is not None:
        logits = predict_split(model, data.validation, recipe.training, accelerator)
        if not logits.isfinite().all():
            raise _divergence("predictions are no longer finite at the end", progress)
        targets = data.validation.labels
        for name in VALIDATION_METRICS:
            record[f"validation_{name}"] = METRICS[name](logits, targets)
        observed = observe_predictions(logits, targets)
        record |= {f"validation_{name}": value for name, value in observed.items()}
        call_hook(state.objective.loss, "after_epoch", *confidence_and_correct(logits, targets))
        if state.best is not None:
            state.best.update(progress.epoch + 1, record[f"validation_{state.best.by}"], model)
    if state.dynamics is not None:
        state.dynamics.end_epoch(accelerator)
    rows: list[dict[str, Any]] = getattr(state.objective.loss, "epoch_rows", list)()
    progress.loss_rows += [{"epoch": progress.epoch + 1, **row} for row in rows]
    progress.history.append(record)
    progress.epoch += 1
    progress.step, progress.loss, progress.correct, progress.seconds = 0, 0.0, 0, 0.0
    progress.gradient_norm, progress.measured_steps = 0.0, 0
    return record


def _norms(progress: TrainingProgress, model: nn.Module) -> dict[str, float]:
    """Norms of the last layer: of the weights now, of the gradient on average over the steps."""
    norms = {}
    if (layer := last_layer(model)) is not None:
        norms["norm_last_weights"] = weight_norm(layer)
    if progress.measured_steps:
        norms["norm_last_gradient"] = progress.gradient_norm / progress.measured_steps
    return norms


def _set_rate(state: TrainState, recipe: Recipe, step: int, steps_per_epoch: int) -> None:
    epochs = recipe.training.epochs
    fraction = rate_at(step, steps_per_epoch * epochs, epochs, recipe.schedule)
    for group in state.optimiser.param_groups:
        group["lr"] = recipe.optimiser.learning_rate * fraction


def _add_sums(sums: list[Tensor], progress: TrainingProgress, accelerator: Accelerator) -> None:
    """Adds the sums of the latest steps, in order, so that a resumed epoch adds the same."""
    for loss, correct, norm, measured in accelerator.reduce(torch.stack(sums), "sum").tolist():
        progress.loss += loss
        progress.correct += round(correct)
        progress.gradient_norm += norm
        progress.measured_steps += round(measured)
    if not math.isfinite(progress.loss):
        raise _divergence(f"the loss is no longer finite by step {progress.step}", progress)


def _divergence(problem: str, progress: TrainingProgress) -> TrainingError:
    return TrainingError(
        f"{problem} of epoch {progress.epoch + 1}",
        "lower optimiser.learning_rate or set optimiser.gradient_clip (the focal family's papers "
        "clip at 2)",
    )
