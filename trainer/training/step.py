"""One gradient step: forward, objective, backward and the update of the parameters."""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from accelerate import Accelerator
from torch import Tensor, nn

from difficulty_service.base.device_copies import send
from trainer.config import Recipe
from trainer.data.mixing import mix_images
from trainer.samples import Samples
from trainer.training.accelerator import to_memory_format
from trainer.training.sharding import exchange_gradients
from trainer.training.state import TrainState
from trainer.training.strided_convolutions import RightGradients
from trainer.training.supervision import TRUSTED, Supervision


@dataclass(frozen=True)
class TrainingData:
    """The data of a training run.

    Attributes:
        train: Training samples.
        weights: Weight of the entropy of each; None weighs all by one. Shape (samples,).
        validation: Validation samples.
        supervision: How far the labels are trusted.
        difficulty: Difficulty of each sample, which decides the order; None for a random one.
            Shape (samples,).
    """

    train: Samples
    weights: Tensor | None
    validation: Samples | None
    supervision: Supervision = TRUSTED
    difficulty: Tensor | None = None


def no_observation() -> Tensor:
    """Observes nothing. Shape (0,)."""
    return torch.zeros(0)


@dataclass(frozen=True)
class GradientStep:
    """Takes gradient steps.

    Attributes:
        observe_gradients: Returns sums over the parameters' gradients, which all processes agree
            on. Shape (observed,). The step calls it when all gradients are there: afterwards it
            clips them in place, and frees them.
    """

    state: TrainState
    data: TrainingData
    recipe: Recipe
    accelerator: Accelerator
    observe_gradients: Callable[[], Tensor] = no_observation

    def take(self, batch: Tensor, share: Tensor, inputs: Tensor) -> Tensor:
        """Trains on this process's share of a batch; both are positions of samples.

        Returns the sum of the losses and the number of correct predictions, over the share; and
        this process's share of what is observed of the gradients. Shape (2 + observed,).
        """
        state, settings = self.state, self.recipe.training
        # Accelerate averages gradients over the processes; the factor makes that the sum of all
        # losses over the whole batch, or their mean.
        scale = 1 / len(batch) if settings.reduction == "mean" else 1.0
        scale *= self.accelerator.num_processes
        # Processes that share parameters or batch statistics wait for each other in every part, so
        # that all have as many as the smallest share allows.
        number = min(settings.gradient_accumulation, len(batch) // self.accelerator.num_processes)
        losses, correct = [], []
        for part, part_inputs, is_last in _parts(share, inputs, number):
            # The processes exchange their gradients once, when all parts are added up.
            exchange_gradients(state.model, exchange=is_last)
            with nullcontext() if is_last else self.accelerator.no_sync(state.model):
                part_losses, part_correct = self._forward(part, part_inputs)
                self.accelerator.backward(part_losses.sum() * scale)
            losses.append(part_losses.detach())
            correct.append(part_correct)
        self.accelerator.unscale_gradients(state.optimiser)
        # All processes have the same gradients, and what they return is added up.
        observed = self.observe_gradients() / self.accelerator.num_processes
        if self.recipe.optimiser.gradient_clip is not None:
            nn.utils.clip_grad_norm_(state.model.parameters(), self.recipe.optimiser.gradient_clip)
        state.optimiser.step()
        state.optimiser.zero_grad(set_to_none=True)
        if state.average is not None:
            state.average.update_parameters(self.accelerator.unwrap_model(state.model))
        self._report_correct(batch, torch.cat(correct))
        sums = torch.stack([torch.cat(losses).sum(), torch.cat(correct).sum()])
        return torch.cat([sums, observed.to(sums)])

    def _forward(self, share: Tensor, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each sample, and whether its prediction is right."""
        state, settings = self.state, self.recipe.training
        samples, device = self.data.train, inputs.device
        self._announce(share)
        source = samples.labels if samples.distributions is None else samples.distributions
        targets = send(source[share], device)
        weights = self.data.weights
        if weights is not None:
            weights = send(weights[share].float(), device)
        supervision = self.data.supervision.of(share, device)
        if settings.mixing != "none":
            inputs, shares = mix_images(inputs, settings.mixing, settings.mixing_alpha)
            num_classes = len(samples.class_names)
            soft = targets if targets.ndim > 1 else F.one_hot(targets, num_classes).to(shares)
            targets = shares @ soft
            weights = None if weights is None else shares @ weights
            supervision = supervision.mixed(shares)
        with RightGradients(), self.accelerator.autocast():
            batch_inputs = to_memory_format(inputs, channels_last=settings.channels_last)
            logits = state.model(batch_inputs).float()
        if state.dynamics is not None:
            state.dynamics.add(share, logits, samples.labels[share].to(device))
        losses = state.objective(logits, targets, weights, supervision)
        likeliest = targets if targets.ndim == 1 else targets.argmax(dim=1)
        return losses, logits.detach().argmax(dim=1) == likeliest

    def _announce(self, positions: Tensor) -> None:
        """Gives a loss with memory the ids of the samples to come."""
        loss = self.state.objective.loss
        if hasattr(loss, "before_batch"):
            ids = self.data.train.sample_ids
            loss.before_batch([ids[position] for position in positions.tolist()])

    def _report_correct(self, batch: Tensor, correct: Tensor) -> None:
        """Gives a loss with memory the whole batch, so that all processes keep the same memory."""
        loss = self.state.objective.loss
        if not hasattr(loss, "after_batch"):
            return
        if self.accelerator.num_processes > 1 or self.recipe.training.gradient_accumulation > 1:
            self._announce(batch)
        if self.accelerator.num_processes > 1:
            padded = self.accelerator.pad_across_processes(correct.to(torch.int8), pad_index=-1)
            gathered = self.accelerator.gather(padded)
            # The last batch of an epoch may be cut into unequal shares, whose padding is -1.
            correct = gathered[gathered >= 0].bool()
        loss.after_batch(correct)


def _parts(share: Tensor, inputs: Tensor, number: int) -> Iterator[tuple[Tensor, Tensor, bool]]:
    """Nearly equal parts of some samples, with their inputs, and whether a part is the last one."""
    if number <= 1:  # trees are no rows that could be split
        yield share, inputs, True
        return
    parts = zip(share.tensor_split(number), inputs.tensor_split(number), strict=True)
    for position, part in enumerate(parts, 1):
        yield *part, position == number
