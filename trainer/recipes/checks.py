"""Checks for tables of a recipe that are valid alone but contradict each other."""

import math
from collections.abc import Iterator, Sequence

import torch

from trainer.config import LossConfig, Recipe
from trainer.losses import LOSSES_WITH_MEMORY, Loss, make_loss
from trainer.losses.focal import ScheduledFocal
from trainer.models import MODELS, kind_of_model
from trainer.own_code import is_own
from trainer.recipes.messages import wrong_value

LOGITS = ((1.0, 0.0), (1.0, 0.0))
"""Logits of the batch on which losses are tried."""


def contradictions(recipe: Recipe, *, in_sweep: bool = False) -> list[str]:
    """Finds settings of different tables, each valid by itself, that contradict each other.

    Returns one message with its remedy for each. In a sweep alpha may be 0 with weights by scores,
    which is the plain loss.
    """
    checks = (
        _check_model(recipe),
        _check_schedule(recipe),
        _check_loss(recipe),
        _check_weights(recipe, in_sweep=in_sweep),
        _check_final(recipe),
    )
    return [problem for problems in checks for problem in problems]


def _check_model(recipe: Recipe) -> Iterator[str]:
    name, kind = recipe.model.name, recipe.data.kind
    if is_own(name):
        return
    needed = kind_of_model(name)
    if kind != needed:
        fitting = sorted(model for model in MODELS if kind_of_model(model) == kind)
        remedy = f'takes {needed}, and data.kind is "{kind}"; choose {" or ".join(fitting)}'
        yield wrong_value("model.name", name, remedy)


def _check_schedule(recipe: Recipe) -> Iterator[str]:
    if recipe.schedule.name != "steps":
        return
    milestones, epochs = recipe.schedule.milestones, recipe.training.epochs
    late = [milestone for milestone in milestones if milestone >= epochs and milestone >= 1]
    if late:
        yield wrong_value(
            "schedule.milestones",
            milestones,
            f"{_never_reached(late)} in training.epochs = {epochs}; give milestones "
            f"below {epochs}, or fractions of all epochs such as [0.5, 0.75]",
        )


def _never_reached(epochs: Sequence[float]) -> str:
    listed = " and ".join(f"{epoch:g}" for epoch in epochs)
    return f"{listed} {'is' if len(epochs) == 1 else 'are'} never reached"


def _check_loss(recipe: Recipe) -> Iterator[str]:
    name, epochs = recipe.loss.name, recipe.training.epochs
    learns_from_validation = hasattr(LOSSES_WITH_MEMORY.get(name), "after_epoch")
    if learns_from_validation and recipe.data.validation == 0:
        yield wrong_value("loss.name", name, "needs validation data; make data.validation 0.1")
    try:
        loss = _try_loss(recipe.loss, epochs)
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        yield f'[loss] of name "{name}": {error}'
        return
    if recipe.loss.targets == "posterior" and _depends_on_other_labels(loss):
        yield wrong_value(
            "loss.targets",
            "posterior",
            f'"{name}" compares the predictions with the labels of other samples or of earlier '
            'epochs, so it has no mean over two labels; set loss.weights = "label_probability" '
            "instead, or choose another loss",
        )
    if isinstance(loss, ScheduledFocal) and not loss.schedule.fractional:
        late = [boundary for boundary in loss.schedule.boundaries if boundary >= epochs]
        if late:
            yield wrong_value(
                "loss.boundaries",
                loss.schedule.boundaries,
                f"{_never_reached(late)} in training.epochs = {epochs}; give fractions of all "
                "epochs and loss.fractional = true",
            )


def _depends_on_other_labels(loss: Loss) -> bool:
    """Whether the loss of a sample depends on more labels than its own."""
    if hasattr(loss, "after_batch"):
        return True
    first, second = (
        loss(torch.tensor(LOGITS), torch.tensor(targets))[0] for targets in ((0, 1), (0, 0))
    )
    return not torch.equal(first, second)


def _try_loss(config: LossConfig, epochs: int) -> Loss:
    """The loss after one batch of two samples, which is where most constants are validated."""
    loss = make_loss(config.name, **config.constants)
    sample_ids = ("first", "second")
    for hook, arguments in (
        ("before_training", (sample_ids,)),
        ("before_epoch", (0, epochs)),
        ("before_batch", (sample_ids,)),
    ):
        if hasattr(loss, hook):
            getattr(loss, hook)(*arguments)
    losses = loss(torch.tensor(LOGITS), torch.tensor([0, 1]))
    if losses.shape != (2,):
        raise ValueError(f"it gives shape {tuple(losses.shape)} for 2 samples, not one loss each")
    if not all(math.isfinite(value) for value in losses.tolist()):
        raise ValueError("its constants give losses that are not finite; choose smaller ones")
    return loss


def _check_weights(recipe: Recipe, *, in_sweep: bool) -> Iterator[str]:
    regulariser = recipe.regulariser
    if regulariser.weights == "scores" and regulariser.alpha == 0 and not in_sweep:
        yield wrong_value(
            "regulariser.weights",
            "scores",
            "has no effect with regulariser.alpha = 0; raise alpha, such as to 0.3, or make it "
            '"constant"',
        )


def _check_final(recipe: Recipe) -> Iterator[str]:
    if recipe.training.final == "best" and recipe.data.validation == 0:
        remedy = "needs validation data; make data.validation 0.1"
        yield wrong_value("training.final", recipe.training.final, remedy)
