"""The state of a training run: built from a recipe, saved to a checkpoint, restored from one.

From a checkpoint a run resumes as if it had never stopped. The state includes the best epoch of a
run by a validation metric, and the parameters of its model.
"""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_avg_fn

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
from trainer.training.accelerator import require_processes
from trainer.training.dynamics import Dynamics
from trainer.training.moving_average import MovingAverage
from trainer.training.objective import Objective
from trainer.training.plan import Purpose, seed_of
from trainer.training.sharding import load_model, load_optimiser, shard, whole

VERSION = 1


@dataclass
class TrainingProgress:
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
    progress: TrainingProgress
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Any]
    loss: Mapping[str, Any]
    average: Mapping[str, Any]
    scaler: Mapping[str, Any]
    best: Mapping[str, Any] = field(default_factory=dict)
    dynamics: Mapping[str, Tensor] = field(default_factory=dict)


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
    return Checkpoint(**(values | {"progress": TrainingProgress(**values["progress"])}))


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
    """Everything that changes with every training step.

    Attributes:
        model: The model, as the accelerator prepared it.
        optimiser: Its optimiser, likewise.
        objective: What is minimised.
        average: A moving average of the parameters, if the recipe asks for one.
        progress: How far the run is.
        best: The best epoch, if the recipe asks for it.
        unsharded: A model on the CPU to copy, where the parameters are spread over the processes.
        dynamics: How each sample is learned, if the recipe asks for it.
    """

    model: nn.Module
    optimiser: torch.optim.Optimizer
    objective: Objective
    average: AveragedModel | None
    progress: TrainingProgress
    best: BestEpoch | None = None
    unsharded: nn.Module | None = None
    dynamics: Dynamics | None = None

    def final_model(self, accelerator: Accelerator) -> nn.Module:
        """The model, or its moving average, at this step; all processes must call this together."""
        model = self.average.module if self.average else accelerator.unwrap_model(self.model)
        if self.unsharded is not None:
            parameters = whole(model.state_dict())
            model = copy.deepcopy(self.unsharded)
            model.load_state_dict(parameters)
            model = model.to(accelerator.device)
        if accelerator.num_processes > 1:
            # Each process has batch statistics of its own share; those of the main one are kept.
            broadcast(list(model.buffers()))
        return model


def make_train_state(
    recipe: Recipe, seed: int, splits: Splits, accelerator: Accelerator
) -> TrainState:
    """Builds the state before the first step."""
    settings = recipe.training
    require_processes(settings, accelerator)
    torch.manual_seed(seed_of(seed, Purpose.PARAMETERS))
    model = build_model(recipe.model, splits.spec, len(splits.train.class_names))
    is_of_images = len(splits.spec.shape) == 3  # noqa: PLR2004 - channels, height, width
    # Parameters that are to be spread stay contiguous; images alone then have their channels last.
    if settings.channels_last and is_of_images and not settings.fsdp:
        model = model.to(memory_format=torch.channels_last)
    unsharded = copy.deepcopy(model) if settings.fsdp else None
    if settings.sync_batchnorm:
        model = _synchronised(model, accelerator)
    average = None
    if settings.ema_decay is not None:
        average = _moving_average(model, settings.ema_decay, accelerator, sharded=settings.fsdp)
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
    best = BestEpoch(settings.best_by) if settings.final == "best" else None
    if settings.fsdp:
        model = shard(model, accelerator)
        optimiser = accelerator.prepare(make_optimiser(model, recipe.optimiser))
    else:
        model, optimiser = accelerator.prepare(model, make_optimiser(model, recipe.optimiser))
    # An optimiser with a state from the start has it moved to the device. Reading the number of the
    # step there would wait for the device, once for each parameter.
    for state in optimiser.state.values():
        if "step" in state:
            state["step"] = state["step"].cpu()
    dynamics = Dynamics.of(len(splits.train)) if settings.dynamics else None
    return TrainState(
        model, optimiser, objective, average, TrainingProgress(), best, unsharded, dynamics
    )


def _synchronised(model: nn.Module, accelerator: Accelerator) -> nn.Module:
    """A model whose batch statistics are those of all processes; one process has those already."""
    if not any(isinstance(each, nn.modules.batchnorm._BatchNorm) for each in model.modules()):
        raise TrainingError(
            "training.sync_batchnorm = true, but the model has no batch normalisation",
            "leave it out",
        )
    if accelerator.num_processes == 1:
        return model  # nor would PyTorch's layers run on a CPU
    return nn.SyncBatchNorm.convert_sync_batchnorm(model)


def _moving_average(
    model: nn.Module, decay: float, accelerator: Accelerator, *, sharded: bool
) -> AveragedModel:
    if not sharded:
        return MovingAverage(model, decay, accelerator.device)
    # All at once would mix parameters, which are spread, with buffers, which are not.
    average = AveragedModel(model, avg_fn=get_ema_avg_fn(decay), use_buffers=True)
    shard(average.module, accelerator)
    average.n_averaged = average.n_averaged.to(accelerator.device)
    return average


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
    """Writes the checkpoint and the history of a run into its folder, by the main process.

    All processes must call this together.
    """
    loss, scaler = state.objective.loss, accelerator.scaler
    checkpoint = Checkpoint(
        identity=identity,
        progress=state.progress,
        model=whole(accelerator.unwrap_model(state.model).state_dict()),
        optimiser=whole(state.optimiser.state_dict()),
        loss=loss.state_dict() if hasattr(loss, "state_dict") else {},
        average=whole(state.average.state_dict()) if state.average is not None else {},
        scaler=scaler.state_dict() if scaler is not None else {},
        best=vars(state.best) if state.best is not None else {},
        dynamics=state.dynamics.state(accelerator) if state.dynamics is not None else {},
    )
    if not accelerator.is_main_process:
        return
    save_checkpoint(folder / run_folder.CHECKPOINT, checkpoint)
    run_folder.write_history(folder / run_folder.HISTORY, state.progress.history)


def resume_train_state(
    path: Path, identity: Mapping[str, Any], state: TrainState, accelerator: Accelerator
) -> TrainState:
    """Restores a state from a checkpoint."""
    checkpoint = load_checkpoint(path)
    require_same_run(path, checkpoint.identity, identity)
    load_model(accelerator.unwrap_model(state.model), checkpoint.model)
    load_optimiser(state.optimiser, checkpoint.optimiser)
    if checkpoint.loss:
        call_hook(state.objective.loss, "load_state_dict", checkpoint.loss)
    if state.average is not None:
        load_model(state.average, checkpoint.average)
    if accelerator.scaler is not None and checkpoint.scaler:
        accelerator.scaler.load_state_dict(checkpoint.scaler)
    if state.dynamics is not None:
        state.dynamics.load(checkpoint.dynamics, accelerator)
    best = BestEpoch(**checkpoint.best) if state.best is not None else None
    return replace(state, progress=checkpoint.progress, best=best)
