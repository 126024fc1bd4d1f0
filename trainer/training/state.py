"""The state of a training run: built from a recipe, saved to a checkpoint, restored from one.

From a checkpoint a run resumes as if it had never stopped. The state includes the best epoch of a
run by a validation metric, and the parameters of its model.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from difficulty_service.base.checksums import add_checksum, verify_zip
from difficulty_service.base.errors import ConfigError, Setting, TrainingError
from difficulty_service.base.files import replacing
from difficulty_service.base.wording import differences
from trainer import run_folder
from trainer.config import BestBy, Recipe
from trainer.config.steps import Optimiser
from trainer.data import Splits
from trainer.losses import call_hook, make_loss
from trainer.models import build_model
from trainer.training.objective import Objective
from trainer.training.plan import Purpose, seed_of

VERSION = 1


@dataclass
class Progress:
    """Progress of a run, updated in place by the loop.

    Loss, correct predictions, seconds and norms of the last layer's gradient are sums over the
    steps of the current epoch that are done, the norms only over those steps where it was measured.
    """

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    correct: int = 0
    seconds: float = 0.0
    gradient_norm: float = 0.0
    measured_steps: int = 0
    history: list[dict[str, Any]] = field(default_factory=list)
    loss_rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """A run after one step, known by its identity; what the run does not have is empty."""

    identity: Mapping[str, Any]
    progress: Progress
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Any]
    loss: Mapping[str, Any]
    average: Mapping[str, Any]
    scaler: Mapping[str, Any]
    best: Mapping[str, Any] = field(default_factory=dict)


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replaces a checkpoint file atomically."""
    values = vars(checkpoint) | {"progress": vars(checkpoint.progress), "version": VERSION}
    with replacing(path) as temporary:
        torch.save(values, temporary)
        add_checksum(temporary)


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads a checkpoint onto the CPU."""
    try:
        verify_zip(path)
        values = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise
    except Exception as error:  # torch raises a dozen kinds for a damaged file
        raise TrainingError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}: {error})",
            "delete it and train from the start",
        ) from error
    version = values.pop("version", None) if isinstance(values, dict) else None
    if version != VERSION:
        raise TrainingError(
            f"{path} has version {version} of checkpoints, but this package reads {VERSION}",
            "delete it and train from the start",
        )
    return Checkpoint(**(values | {"progress": Progress(**values["progress"])}))


def require_same_run(path: Path, saved: Mapping[str, Any], current: Mapping[str, Any]) -> None:
    """Refuses to resume a run with another recipe, seed, data or weights."""
    different = differences(saved, current)
    if different:
        raise TrainingError(
            f"{path} belongs to another run: {'; '.join(different)}",
            "resume it with the settings it was started with, or use another ",
            Setting("out"),
        )


HIGHER_IS_BETTER: Mapping[BestBy, bool] = {
    "accuracy": True,
    "nll": False,
    "ece": False,
    "adaptive_ece": False,
}
"""Whether a larger value of a metric is better."""


@dataclass
class BestEpoch:
    """The best epoch so far, counted from one, 0 before the first; updated in place by the loop."""

    by: BestBy
    epoch: int = 0
    value: float | None = None
    parameters: dict[str, Tensor] = field(default_factory=dict)

    def update(self, epoch: int, value: float, model: nn.Module) -> None:
        """Keeps a model that is better than all before; the first one wins a tie."""
        sign = 1 if HIGHER_IS_BETTER[self.by] else -1
        if self.value is not None and sign * value <= sign * self.value:
            return
        self.epoch, self.value = epoch, value
        self.parameters = {
            name: tensor.detach().cpu().clone() for name, tensor in model.state_dict().items()
        }


@dataclass(frozen=True)
class TrainState:
    """Everything that changes with every training step."""

    model: nn.Module
    optimiser: torch.optim.Optimizer
    objective: Objective
    average: AveragedModel | None
    progress: Progress
    best: BestEpoch | None = None

    def final_model(self, accelerator: Accelerator) -> nn.Module:
        """The model, or its moving average, at this step; all processes must call this together."""
        model = self.average.module if self.average else accelerator.unwrap_model(self.model)
        if accelerator.num_processes > 1:
            # Each process has batch statistics of its own share; those of the main one are kept.
            broadcast(list(model.buffers()))
        return model


def make_train_state(
    recipe: Recipe, seed: int, splits: Splits, accelerator: Accelerator
) -> TrainState:
    """Builds the state before the first step."""
    settings = recipe.training
    torch.manual_seed(seed_of(seed, Purpose.PARAMETERS))
    model = build_model(recipe.model, splits.spec, len(splits.train.class_names))
    if settings.channels_last and len(splits.spec.shape) == 3:  # noqa: PLR2004 - images
        model = model.to(memory_format=torch.channels_last)
    average = None
    if settings.ema_decay is not None:
        average = AveragedModel(
            model,
            device=accelerator.device,
            multi_avg_fn=get_ema_multi_avg_fn(settings.ema_decay),
            use_buffers=True,
        )
    if settings.compile:
        model.compile()
    loss = make_loss(recipe.loss.name, **recipe.loss.constants)
    if hasattr(loss, "after_epoch") and splits.validation is None:
        raise ConfigError(
            f"loss {recipe.loss.name!r} learns from validation samples, but data.validation holds "
            "none out",
            "set data.validation = 0.1",
        )
    call_hook(loss, "before_training", splits.train.sample_ids)
    objective = Objective(loss, recipe.regulariser.alpha)
    optimiser = make_optimiser(model, recipe.optimiser)
    prepared_model, prepared_optimiser = accelerator.prepare(model, optimiser)
    best = BestEpoch(settings.best_by) if settings.final == "best" else None
    return TrainState(prepared_model, prepared_optimiser, objective, average, Progress(), best)


def make_optimiser(model: nn.Module, config: Optimiser) -> torch.optim.Optimizer:
    """The optimiser of a model's trainable parameters."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.name == "adamw":
        return torch.optim.AdamW(
            parameters, lr=config.learning_rate, weight_decay=config.weight_decay
        )
    if config.name == "adagrad":
        return torch.optim.Adagrad(
            parameters, lr=config.learning_rate, weight_decay=config.weight_decay
        )
    return torch.optim.SGD(
        parameters,
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
    )


def save_train_state(
    folder: Path, identity: Mapping[str, Any], state: TrainState, accelerator: Accelerator
) -> None:
    """Writes the checkpoint and the history of a run into its folder."""
    loss, scaler = state.objective.loss, accelerator.scaler
    checkpoint = Checkpoint(
        identity=identity,
        progress=state.progress,
        model=accelerator.unwrap_model(state.model).state_dict(),
        optimiser=state.optimiser.state_dict(),
        loss=loss.state_dict() if hasattr(loss, "state_dict") else {},
        average=state.average.state_dict() if state.average is not None else {},
        scaler=scaler.state_dict() if scaler is not None else {},
        best=vars(state.best) if state.best is not None else {},
    )
    save_checkpoint(folder / run_folder.CHECKPOINT, checkpoint)
    run_folder.write_history(folder / run_folder.HISTORY, state.progress.history)


def resume_train_state(
    path: Path, identity: Mapping[str, Any], state: TrainState, accelerator: Accelerator
) -> TrainState:
    """Restores a state from a checkpoint."""
    checkpoint = load_checkpoint(path)
    require_same_run(path, checkpoint.identity, identity)
    accelerator.unwrap_model(state.model).load_state_dict(checkpoint.model)
    state.optimiser.load_state_dict(dict(checkpoint.optimiser))
    if checkpoint.loss:
        call_hook(state.objective.loss, "load_state_dict", checkpoint.loss)
    if state.average is not None:
        state.average.load_state_dict(checkpoint.average)
    if accelerator.scaler is not None and checkpoint.scaler:
        accelerator.scaler.load_state_dict(checkpoint.scaler)
    best = BestEpoch(**checkpoint.best) if state.best is not None else None
    return replace(state, progress=checkpoint.progress, best=best)
