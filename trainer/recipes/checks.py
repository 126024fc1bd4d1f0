"""Settings that are right one by one and make no sense together."""

import math
from collections.abc import Iterator

import torch

from trainer.config import DataConfig, LossConfig, Recipe
from trainer.losses import LOSSES_WITH_MEMORY, make_loss
from trainer.losses.focal import ScheduledFocal
from trainer.models import KINDS, MODELS
from trainer.recipes.messages import wrong_value

# Keys of [data] that mean something for one kind of data only.
OF_ONE_KIND = {"image_size": "images", "labels": "features"}


def contradictions(recipe: Recipe) -> list[str]:
    """Settings of a recipe that exclude each other, each with its remedy.

    Args:
        recipe: One whose values are valid by themselves.

    Returns:
        One text each, empty for a recipe that can run.
    """
    checks = (
        _of_data(recipe.data),
        _of_model(recipe),
        _of_schedule(recipe),
        _of_loss(recipe),
        _of_the_rest(recipe),
    )
    return [problem for problems in checks for problem in problems]


def _of_data(data: DataConfig) -> Iterator[str]:
    if data.kind != "images" and data.augmentation != "none":
        yield wrong_value(
            "data.augmentation",
            data.augmentation,
            f'changes images, and data.kind is "{data.kind}"; make it "none"',
        )
    for key, kind in OF_ONE_KIND.items():
        value = getattr(data, key)
        if value is not None and data.kind != kind:
            remedy = f'needs data.kind = "{kind}", which is "{data.kind}"; take one of them out'
            yield wrong_value(f"data.{key}", value, remedy)
    if data.validation_split is not None and not isinstance(data.validation, str):
        yield wrong_value(
            "data.validation_split",
            data.validation_split,
            "needs a dataset in data.validation, which is a share of data.train",
        )
    for key in ("test_split", "test_label_column"):
        if getattr(data, key) is not None and data.test is None:
            yield wrong_value(f"data.{key}", getattr(data, key), "needs a dataset in data.test")


def _of_model(recipe: Recipe) -> Iterator[str]:
    name, kind = recipe.model.name, recipe.data.kind
    needed = KINDS.get(name, "images")
    if kind != needed:
        fitting = sorted(model for model in MODELS if KINDS.get(model, "images") == kind)
        remedy = f'learns from {needed}, and data.kind is "{kind}"; choose {" or ".join(fitting)}'
        yield wrong_value("model.name", name, remedy)


def _of_schedule(recipe: Recipe) -> Iterator[str]:
    if recipe.schedule.name != "steps":
        return
    milestones, epochs = recipe.schedule.milestones, recipe.training.epochs
    if not milestones:
        yield wrong_value(
            "schedule.name", "steps", "needs schedule.milestones, such as [0.5, 0.75] of all epochs"
        )
    late = [milestone for milestone in milestones if milestone >= epochs and milestone >= 1]
    if late:
        yield wrong_value(
            "schedule.milestones",
            milestones,
            f"{late[0]:g} is never reached in training.epochs = {epochs}; numbers below 1 are "
            "shares of all epochs",
        )


def _of_loss(recipe: Recipe) -> Iterator[str]:
    name, epochs = recipe.loss.name, recipe.training.epochs
    learns_from_validation = hasattr(LOSSES_WITH_MEMORY.get(name), "after_epoch")
    if learns_from_validation and recipe.data.validation == 0:
        yield wrong_value("loss.name", name, "needs validation data; make data.validation 0.1")
    try:
        loss = _try(recipe.loss, epochs)
    except (IndexError, TypeError, ValueError) as error:
        yield f'[loss] of name "{name}": {error}'
        return
    if isinstance(loss, ScheduledFocal) and not loss.schedule.fractional:
        late = [boundary for boundary in loss.schedule.boundaries if boundary >= epochs]
        if late:
            yield wrong_value(
                "loss.boundaries",
                loss.schedule.boundaries,
                f"{late[0]:g} is never reached in training.epochs = {epochs}; give shares of all "
                "epochs and loss.fractional = true",
            )


def _try(config: LossConfig, epochs: int) -> object:
    """The loss after one batch of two samples: most constants are first looked at there."""
    loss = make_loss(config.name, **config.constants)
    sample_ids = ("first", "second")
    for hook, arguments in (
        ("before_training", (sample_ids,)),
        ("before_epoch", (0, epochs)),
        ("before_batch", (sample_ids,)),
    ):
        if hasattr(loss, hook):
            getattr(loss, hook)(*arguments)
    losses = loss(torch.tensor([[1.0, 0.0], [1.0, 0.0]]), torch.tensor([0, 1]))
    if not all(math.isfinite(value) for value in losses.tolist()):
        raise ValueError("its constants give losses that are not finite; choose smaller ones")
    return loss


def _of_the_rest(recipe: Recipe) -> Iterator[str]:
    regulariser, optimiser, seeds = recipe.regulariser, recipe.optimiser, recipe.training.seeds
    if regulariser.weights == "scores" and regulariser.alpha == 0:
        yield wrong_value(
            "regulariser.weights",
            "scores",
            "has no effect with regulariser.alpha = 0; raise alpha, such as to 0.3, or make it "
            '"constant"',
        )
    if optimiser.name == "sgd" and optimiser.nesterov and optimiser.momentum == 0:
        remedy = "needs optimiser.momentum above 0, such as 0.9"
        yield wrong_value("optimiser.nesterov", optimiser.nesterov, remedy)
    if len(set(seeds)) < len(seeds):
        yield wrong_value("training.seeds", seeds, "names a seed twice; each is one run")
