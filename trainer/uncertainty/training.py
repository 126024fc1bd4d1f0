"""Trains an uncertainty head on cached features and the losses of a classifier that is fixed.

Neither backbone nor classifier change, so the loss of every cached row is computed once, and an
epoch is a pass of the head alone. Each epoch uses the next of the augmentation runs in turn.

The objectives of an uncertainty head: to order samples by their loss, or to predict its value.

The losses of the samples are constants in both; no gradient flows to the classifier.
"""

import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import TrainingError
from trainer.config import Head
from trainer.config.steps import CosineRate
from trainer.metrics.ranking import auroc
from trainer.training.loop import TrainingCallbacks
from trainer.training.plan import Purpose, plan_epoch, rate_at, seed_of
from trainer.training.state import TrainingProgress
from trainer.uncertainty.head import UncertaintyHead


def ranking_loss(
    uncertainties: Tensor, losses: Tensor, *, margin: float = 0.1, leeway: float = 0.0
) -> Tensor:
    """Hinge loss of pairs: the sample with the larger loss is to be more uncertain by a margin.

    The pairs are rows 0 and 1, 2 and 3, ... of the batch, as in Kirchhof et al. (2024); the last
    row of an odd batch is paired with the first one. Only the order of the losses matters, so with
    `leeway` 0 any increasing function of them, such as a multiple, gives the same value and
    gradient. The scale of the uncertainties follows from the margin and has no other meaning.

    A pair of equal losses has no order and counts as `margin`, a constant without a gradient; the
    published code pushes its second sample up.
    """
    closing = slice(0, len(losses) % 2)  # the first row of an odd batch, or no row
    second_uncertainties = torch.cat([uncertainties[1::2], uncertainties[closing]])
    second_losses = torch.cat([losses[1::2], losses[closing]])
    differences = (losses[::2] - second_losses).detach()
    order = differences.sign() * (differences.abs() >= leeway)
    return (margin - order * (uncertainties[::2] - second_uncertainties)).clamp(min=0)


def squared_loss(uncertainties: Tensor, losses: Tensor) -> Tensor:
    """Squared difference of each uncertainty from the loss, the older form of loss prediction.

    Unlike `ranking_loss` it depends on the scale of the losses, and large losses dominate it.
    """
    return (uncertainties - losses.detach()).square()


BETAS = (0.8, 0.95)
"""Betas of AdamW in the published code."""

ROWS = 4096
"""Rows of a block of features that a network computes at once."""


@dataclass(frozen=True)
class HeadSamples:
    """What a head is trained on, or evaluated on.

    Attributes:
        features: float32 on the device. Shape (samples, runs, dim).
        losses: Cross-entropy of the classifier in nats, on the device. Shape (samples, runs).
        correct: Whether the classifier is right. Shape (samples, runs).
    """

    features: Tensor
    losses: Tensor
    correct: Tensor


@dataclass(frozen=True)
class HeadState:
    """Everything that changes with every step of a head."""

    head: UncertaintyHead
    optimiser: torch.optim.Optimizer
    progress: TrainingProgress


@torch.no_grad()
def classify(classifier: nn.Module, features: Tensor, labels: Tensor) -> HeadSamples:
    """Computes the losses of a classifier in evaluation mode for features (samples, runs, dim)."""
    samples, runs, dim = features.shape
    blocks = features.reshape(-1, dim).split(ROWS)
    targets = labels.to(features.device).repeat_interleave(runs).split(ROWS)
    losses, correct = [], []
    for block, block_targets in zip(blocks, targets, strict=True):
        logits = classifier(block).float()
        losses.append(F.cross_entropy(logits, block_targets, reduction="none"))
        correct.append(logits.argmax(dim=1) == block_targets)
    all_losses = torch.cat(losses)
    if not all_losses.isfinite().all():
        raise TrainingError(
            "the losses of the classifier are not finite, so no head can learn them",
            "train the classifier again with a lower optimiser.learning_rate",
        )
    shape = (samples, runs)
    return HeadSamples(features, all_losses.view(shape), torch.cat(correct).view(shape))


@torch.no_grad()
def predict_uncertainties(head: UncertaintyHead, features: Tensor) -> Tensor:
    """Uncertainties, (samples,), of features (samples, runs, dim): means over augmentation runs."""
    samples, runs, dim = features.shape
    blocks = features.reshape(-1, dim).split(ROWS)
    return torch.cat([head(block) for block in blocks]).view(samples, runs).mean(dim=1)


def make_head_state(config: Head, seed: int, features: Tensor) -> HeadState:
    """Builds the state before the first step."""
    rows = features.detach().reshape(-1, features.shape[-1])
    torch.manual_seed(seed_of(seed, Purpose.HEAD))
    std = rows.std(dim=0, correction=0)
    head = UncertaintyHead(rows.mean(dim=0).cpu(), std.cpu(), config.hidden).to(features.device)
    optimiser = torch.optim.AdamW(
        head.parameters(), lr=config.learning_rate, betas=BETAS, weight_decay=config.weight_decay
    )
    return HeadState(head, optimiser, TrainingProgress())


def train_head(
    state: HeadState,
    samples: HeadSamples,
    validation: HeadSamples | None,
    config: Head,
    seed: int,
    callbacks: TrainingCallbacks,
) -> bool:
    """Trains until the last epoch or until a callback stops it; returns whether it is finished."""
    progress = state.progress
    while progress.epoch < config.epochs:
        began = time.perf_counter()
        train_loss = _train_epoch(state, samples, config, seed)
        record: dict[str, Any] = {"epoch": progress.epoch + 1, "train_loss": train_loss}
        if validation is not None:
            record |= _measure(state.head, validation, config)
        record["seconds"] = time.perf_counter() - began
        progress.history.append(record)
        progress.epoch += 1
        callbacks.save()
        callbacks.on_epoch(record)
        if progress.epoch < config.epochs and callbacks.should_stop():
            return False
    return True


def _train_epoch(state: HeadState, samples: HeadSamples, config: Head, seed: int) -> float:
    """Takes the steps of an epoch; returns the mean of their losses."""
    epoch, device = state.progress.epoch, samples.features.device
    num_samples, runs, _ = samples.features.shape
    features, losses = samples.features[:, epoch % runs], samples.losses[:, epoch % runs]
    plan = plan_epoch(num_samples, config.batch_size, seed, epoch)
    values = []
    for step, batch in enumerate(plan):
        _set_rate(state, config, epoch * len(plan) + step, len(plan))
        rows = send(batch, device)
        value = _objective(state.head(features[rows]), losses[rows], config)
        state.optimiser.zero_grad(set_to_none=True)
        value.backward()
        state.optimiser.step()
        values.append(value.detach())
    mean = float(torch.stack(values).double().mean())
    if not math.isfinite(mean):
        raise TrainingError(
            f"the loss of the uncertainty head is no longer finite in epoch {epoch + 1}",
            "lower uncertainty.learning_rate",
        )
    return mean


def _set_rate(state: HeadState, config: Head, step: int, steps: int) -> None:
    schedule = CosineRate(warmup=config.warmup)
    fraction = rate_at(step, steps * config.epochs, config.epochs, schedule)
    for group in state.optimiser.param_groups:
        group["lr"] = config.learning_rate * fraction


def _objective(uncertainties: Tensor, losses: Tensor, config: Head) -> Tensor:
    if config.objective == "squared":
        return squared_loss(uncertainties, losses).mean()
    values = ranking_loss(uncertainties, losses, margin=config.margin, leeway=config.leeway)
    return values.mean()


def _measure(head: UncertaintyHead, samples: HeadSamples, config: Head) -> dict[str, float | None]:
    """The objective on held-out samples, and how well the head detects wrong predictions."""
    uncertainties = predict_uncertainties(head, samples.features[:, :1])
    losses, correct = samples.losses[:, 0], samples.correct[:, 0]
    return {
        "validation_loss": float(_objective(uncertainties, losses, config)),
        "validation_auroc_correct": auroc_correct(uncertainties, correct),
    }


def auroc_correct(uncertainties: Tensor, correct: Tensor) -> float | None:
    """Probability that a right sample is less uncertain than a wrong one; None without either."""
    if bool(correct.all()) or not bool(correct.any()):
        return None
    return auroc(-uncertainties.cpu(), correct.cpu())
