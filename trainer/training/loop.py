"""Epochs of gradient steps for any objective; knows no loss and no model by name."""

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel

from difficulty_service.errors import TrainingError
from trainer.config import Recipe
from trainer.metrics import METRICS
from trainer.metrics.predictions import confidence_and_correct
from trainer.samples import Samples
from trainer.training.accelerator import any_process
from trainer.training.checkpoint import Progress
from trainer.training.objective import Objective
from trainer.training.predict import predict, share_of_process, to_memory_format
from trainer.training.schedules import rate_at
from trainer.training.seeding import Purpose, draw_augmentation, plan_epoch, seed_of

STEPS_BETWEEN_CHECKS = 20
"""Looking at a number on a GPU, or at another process, waits for it; so not at every step."""

VALIDATION_METRICS = ("accuracy", "nll", "ece", "adaptive_ece")


@dataclass(frozen=True)
class Material:
    """What is learned from.

    Attributes:
        train: Training samples.
        weights: Of the entropy of each of them; None is one for all. Shape (samples,).
        validation: Judged after every epoch; None where nothing was held out.
    """

    train: Samples
    weights: Tensor | None
    validation: Samples | None


@dataclass(frozen=True)
class Learner:
    """What learns: everything here changes with every step.

    Attributes:
        model: As prepared by the accelerator.
        optimiser: The same.
        objective: Whose loss may have a memory.
        average: Moving average of the model; None where none is kept.
        progress: How far training is.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    objective: Objective
    average: AveragedModel | None
    progress: Progress

    def final_model(self, accelerator: Accelerator) -> nn.Module:
        """The one to judge and to keep: the moving average where there is one.

        All processes call this together.
        """
        model = self.average.module if self.average else accelerator.unwrap_model(self.model)
        if accelerator.num_processes > 1:
            # Batch statistics are of each process's own share; the main process's are kept.
            broadcast(list(model.buffers()))
        return model


@dataclass(frozen=True)
class Watch:
    """Who is told how training goes.

    Attributes:
        step: Called with the samples of each step.
        epoch: Called with the record of each epoch.
        save: Writes a checkpoint.
        stop: Whether to stop after this step.
    """

    step: Callable[[int], None]
    epoch: Callable[[dict[str, Any]], None]
    save: Callable[[], None]
    stop: Callable[[], bool]


def train(
    learner: Learner,
    material: Material,
    recipe: Recipe,
    seed: int,
    accelerator: Accelerator,
    watch: Watch,
) -> bool:
    """Trains until the last epoch, or until told to stop.

    Args:
        learner: New, or as a checkpoint left it.
        material: What is learned from.
        recipe: How.
        seed: Of the order, augmentation and dropout.
        accelerator: Of this process.
        watch: Told of progress; a checkpoint is saved before stopping.

    Returns:
        Whether training is finished.

    Raises:
        TrainingError: The loss is not finite any more.
    """
    progress, settings = learner.progress, recipe.training
    while progress.epoch < settings.epochs:
        call_hook(learner.objective.loss, "before_epoch", progress.epoch, settings.epochs)
        if not _train_epoch(learner, material, recipe, seed, accelerator, watch):
            watch.save()
            return False
        record = _end_epoch(learner, material, recipe, accelerator)
        watch.epoch(record)
        is_last = progress.epoch == settings.epochs
        stopped = not is_last and any_process(watch.stop(), accelerator)
        if is_last or stopped or progress.epoch % settings.checkpoint_every == 0:
            watch.save()
        if stopped:
            return False
    return True


def call_hook(loss: object, name: str, *arguments: object) -> None:
    """Calls a hook of a loss that has it."""
    hook = getattr(loss, name, None)
    if hook is not None:
        hook(*arguments)


def _train_epoch(
    learner: Learner,
    material: Material,
    recipe: Recipe,
    seed: int,
    accelerator: Accelerator,
    watch: Watch,
) -> bool:
    """The steps of an epoch that are not done yet; False when told to stop before its end."""
    progress, settings, samples = learner.progress, recipe.training, material.train
    plan = plan_epoch(len(samples), settings.batch_size, seed, progress.epoch)
    shares = [share_of_process(batch, accelerator) for batch in plan[progress.step :]]
    draws = None
    if recipe.data.augmentation != "none":
        draws = draw_augmentation(len(samples), seed, progress.epoch)
    step = _Step(learner, material, recipe, accelerator)
    dropout_seed = seed_of(seed, Purpose.DROPOUT, progress.epoch, accelerator.process_index)
    sums: list[Tensor] = []
    began, stopped = time.perf_counter(), False
    learner.model.train()
    for batch, share, inputs in zip(
        plan[progress.step :], shares, samples.inputs.batches(shares, draws), strict=True
    ):
        _set_rate(learner, recipe, progress.epoch * len(plan) + progress.step, len(plan))
        torch.manual_seed((dropout_seed + progress.step) % 2**63)
        sums.append(step.take(batch, share, inputs))
        progress.step += 1
        watch.step(len(batch))
        is_checked = progress.step % STEPS_BETWEEN_CHECKS == 0
        if progress.step < len(plan) and (is_checked or accelerator.num_processes == 1):
            stopped = any_process(watch.stop(), accelerator)
        if is_checked or stopped or progress.step == len(plan):
            _add_up(sums, progress, accelerator)
            sums.clear()
        if stopped:
            break
    progress.seconds += time.perf_counter() - began
    return not stopped


@dataclass(frozen=True)
class _Step:
    """One gradient step, with everything it needs at hand."""

    learner: Learner
    material: Material
    recipe: Recipe
    accelerator: Accelerator

    def take(self, batch: Tensor, share: Tensor, inputs: Tensor) -> Tensor:
        """Learns from this process's share of a batch.

        Returns:
            Sum of the losses and number of right predictions, of the share. Shape (2,).
        """
        objective, settings = self.learner.objective, self.recipe.training
        samples, device = self.material.train, inputs.device
        self._name_samples(share)
        targets = samples.labels[share].to(device, non_blocking=True)
        weights = self.material.weights
        if weights is not None:
            weights = weights[share].float().to(device, non_blocking=True)
        logits = self.learner.model(
            to_memory_format(inputs, channels_last=settings.channels_last)
        ).float()
        losses = objective.per_sample(logits, targets, weights)
        # Gradients are averaged over the processes, so each adds its part of the whole batch's.
        share_of_mean = 1 / len(batch) if settings.reduction == "mean" else 1.0
        self.accelerator.backward(losses.sum() * (share_of_mean * self.accelerator.num_processes))
        if self.recipe.optimiser.gradient_clip is not None:
            self.accelerator.clip_grad_norm_(
                self.learner.model.parameters(), self.recipe.optimiser.gradient_clip
            )
        self.learner.optimiser.step()
        self.learner.optimiser.zero_grad(set_to_none=True)
        if self.learner.average is not None:
            model = self.accelerator.unwrap_model(self.learner.model)
            self.learner.average.update_parameters(model)
        correct = logits.detach().argmax(dim=1) == targets
        self._report_correct(batch, correct)
        return torch.stack([losses.detach().sum(), correct.sum()])

    def _name_samples(self, positions: Tensor) -> None:
        loss = self.learner.objective.loss
        if hasattr(loss, "before_batch"):
            ids = self.material.train.sample_ids
            loss.before_batch([ids[position] for position in positions.tolist()])

    def _report_correct(self, batch: Tensor, correct: Tensor) -> None:
        """Tells the loss of the whole batch, so that its memory is the same in every process."""
        loss = self.learner.objective.loss
        if not hasattr(loss, "after_batch"):
            return
        if self.accelerator.num_processes > 1:
            self._name_samples(batch)
            padded = self.accelerator.pad_across_processes(correct.to(torch.int8), pad_index=-1)
            gathered = self.accelerator.gather(padded)
            # The last batch of an epoch may be cut into unequal shares, whose padding is -1.
            correct = gathered[gathered >= 0].bool()
        loss.after_batch(correct)


def _end_epoch(
    learner: Learner, material: Material, recipe: Recipe, accelerator: Accelerator
) -> dict[str, Any]:
    """Judges the validation samples, tells the loss, and moves on to the next epoch."""
    progress = learner.progress
    num_samples = len(material.train)
    record: dict[str, Any] = {
        "epoch": progress.epoch + 1,
        "learning_rate": learner.optimiser.param_groups[0]["lr"],
        "train_loss": progress.loss / num_samples,
        "train_accuracy": progress.correct / num_samples,
        "seconds": progress.seconds,
        "samples_per_second": num_samples / progress.seconds,
    }
    if material.validation is not None:
        logits = predict(
            learner.final_model(accelerator),
            material.validation.inputs,
            len(material.validation),
            recipe.training.evaluation_batch_size,
            accelerator,
            channels_last=recipe.training.channels_last,
        )
        if not logits.isfinite().all():
            raise _divergence("predictions are not finite any more at the end", progress)
        targets = material.validation.labels
        for name in VALIDATION_METRICS:
            record[f"validation_{name}"] = METRICS[name](logits, targets)
        call_hook(learner.objective.loss, "after_epoch", *confidence_and_correct(logits, targets))
    progress.history.append(record)
    progress.epoch += 1
    progress.step, progress.loss, progress.correct, progress.seconds = 0, 0.0, 0, 0.0
    return record


def _set_rate(learner: Learner, recipe: Recipe, step: int, steps_per_epoch: int) -> None:
    epochs = recipe.training.epochs
    share = rate_at(step, steps_per_epoch * epochs, epochs, recipe.schedule)
    for group in learner.optimiser.param_groups:
        group["lr"] = recipe.optimiser.learning_rate * share


def _add_up(sums: list[Tensor], progress: Progress, accelerator: Accelerator) -> None:
    """Adds the sums of the latest steps, in order, so that a resumed epoch adds the same."""
    for loss, correct in accelerator.reduce(torch.stack(sums), "sum").tolist():
        progress.loss += loss
        progress.correct += round(correct)
    if not math.isfinite(progress.loss):
        raise _divergence(f"the loss is not finite any more by step {progress.step}", progress)


def _divergence(what: str, progress: Progress) -> TrainingError:
    return TrainingError(
        f"{what} of epoch {progress.epoch + 1}; lower optimiser.learning_rate or set "
        "optimiser.gradient_clip (the focal family's papers clip at 2)"
    )
