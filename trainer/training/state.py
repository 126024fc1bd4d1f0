"""What learns: built from a recipe, saved to a checkpoint, taken up from one."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from difficulty_service.errors import ConfigError
from trainer import run_folder
from trainer.config import OptimiserConfig, Recipe
from trainer.data import Splits
from trainer.losses import make_loss
from trainer.models import build_model
from trainer.training.checkpoint import (
    Checkpoint,
    Progress,
    load_checkpoint,
    require_same_run,
    save_checkpoint,
)
from trainer.training.loop import Learner, call_hook
from trainer.training.objective import Objective
from trainer.training.seeding import Purpose, seed_of


def make_learner(recipe: Recipe, seed: int, splits: Splits, accelerator: Accelerator) -> Learner:
    """What learns, before its first step.

    Args:
        recipe: What to build.
        seed: Of the first parameters.
        splits: What the model must fit.
        accelerator: Of this process.

    Raises:
        ConfigError: There is no such model or loss, or it does not fit the data.
    """
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
            "none out; set data.validation = 0.1"
        )
    call_hook(loss, "before_training", splits.train.sample_ids)
    objective = Objective(loss, recipe.regulariser.alpha, settings.reduction)
    optimiser = make_optimiser(model, recipe.optimiser)
    prepared_model, prepared_optimiser = accelerator.prepare(model, optimiser)
    return Learner(prepared_model, prepared_optimiser, objective, average, Progress())


def make_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
    """The optimiser of a model's parameters that learn."""
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    if config.name == "adamw":
        return torch.optim.AdamW(
            parameters, lr=config.learning_rate, weight_decay=config.weight_decay
        )
    return torch.optim.SGD(
        parameters,
        lr=config.learning_rate,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.nesterov,
    )


def save_learner(
    folder: Path, identity: Mapping[str, Any], learner: Learner, accelerator: Accelerator
) -> None:
    """Writes the checkpoint and the history of a run into its folder."""
    loss, scaler = learner.objective.loss, accelerator.scaler
    checkpoint = Checkpoint(
        identity=identity,
        progress=learner.progress,
        model=accelerator.unwrap_model(learner.model).state_dict(),
        optimiser=learner.optimiser.state_dict(),
        loss=loss.state_dict() if hasattr(loss, "state_dict") else {},
        average=learner.average.state_dict() if learner.average is not None else {},
        scaler=scaler.state_dict() if scaler is not None else {},
    )
    save_checkpoint(folder / run_folder.CHECKPOINT, checkpoint)
    run_folder.write_history(folder / run_folder.HISTORY, learner.progress.history)


def resume_learner(
    path: Path, identity: Mapping[str, Any], learner: Learner, accelerator: Accelerator
) -> Learner:
    """The learner as a checkpoint left it.

    Raises:
        TrainingError: The checkpoint is damaged, or of another run.
    """
    checkpoint = load_checkpoint(path)
    require_same_run(path, checkpoint.identity, identity)
    accelerator.unwrap_model(learner.model).load_state_dict(checkpoint.model)
    learner.optimiser.load_state_dict(dict(checkpoint.optimiser))
    if checkpoint.loss:
        call_hook(learner.objective.loss, "load_state_dict", checkpoint.loss)
    if learner.average is not None:
        learner.average.load_state_dict(checkpoint.average)
    if accelerator.scaler is not None and checkpoint.scaler:
        accelerator.scaler.load_state_dict(checkpoint.scaler)
    return replace(learner, progress=checkpoint.progress)
