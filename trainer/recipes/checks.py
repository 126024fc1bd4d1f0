"""Checks of the settings of a model or loss, which their names decide, and of the whole recipe."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from difficulty_service.base.errors import ConfigError
from trainer.config import LossConfig, Recipe
from trainer.losses import (
    LOSSES,
    LOSSES_WITH_MEMORY,
    Loss,
    loss_constants,
    make_loss,
    own_constants,
)
from trainer.losses.focal import ScheduledFocal
from trainer.models import AMBIGUOUS, MODELS, PREFIXES, kind_of_model, model_options, own_options
from trainer.own_code import REQUIRED, is_own
from trainer.recipes.tables import did_you_mean, keys_of_table, unknown_key, wrong_value

# The type of a default value, the types of the values that may replace it, and what they are.
TYPES: tuple[tuple[type, tuple[type, ...], str], ...] = (
    (bool, (bool,), "true or false"),
    (int, (int,), "a whole number"),
    (float, (int, float), "a number"),
    (str, (str,), "text"),
    (tuple, (list, tuple), "a list, such as [1, 2]"),
)


def wrong_settings(table: str, name: object, settings: Mapping[str, Any]) -> list[str]:
    """The problems of the name of a loss or a model and of its settings."""
    if not isinstance(name, str):
        return []  # reported as missing or of a wrong type
    if is_own(name):
        return _wrong_own_settings(table, name, settings)
    if table == "model" and name in AMBIGUOUS:
        return [wrong_value("model.name", name, AMBIGUOUS[name])]
    names = sorted(MODELS) if table == "model" else sorted(LOSSES | LOSSES_WITH_MEMORY)
    if name not in names and not (table == "model" and name.startswith(PREFIXES)):
        patterns = [f"{prefix}NAME" for prefix in PREFIXES] if table == "model" else []
        choices = ", ".join([*names, *patterns, "package.module:name"])
        choice = f"no such {table}{did_you_mean(name, names)} Choose one of {choices}"
        return [wrong_value(f"{table}.name", name, choice)]
    defaults = model_options(name) if table == "model" else loss_constants(name)
    problems = []
    for key, value in settings.items():
        if key not in defaults:
            known = [*defaults, *(each for each in keys_of_table(table) if each != "name")]
            problems.append(unknown_key(f'[{table}] of name "{name}"', key, known))
        else:
            problems += _wrong_setting(f"{table}.{key}", value, defaults[key])
    return problems


def _wrong_own_settings(table: str, name: str, settings: Mapping[str, Any]) -> list[str]:
    """The same of a model or a loss from outside the package, which is imported for that."""
    try:
        known = (own_options if table == "model" else own_constants)(name)
    except ConfigError as error:
        return [wrong_value(f"{table}.name", name, str(error))]
    where = f'[{table}] of name "{name}"'
    missing = [
        f"{where} {key}: is missing; {name} has no default for it"
        for key, default in known.defaults.items()
        if default is REQUIRED and key not in settings
    ]
    if known.takes_any:
        return missing
    unknown = [key for key in settings if key not in known.defaults]
    return [*missing, *(unknown_key(where, key, known.defaults) for key in unknown)]


def _wrong_setting(key: str, value: object, default: object) -> list[str]:
    """One message where a setting has another type than its default; None allows any type."""
    for kind, accepted, expected in TYPES:
        if isinstance(default, kind):
            # A bool is an int in Python, but not in a recipe.
            fits = isinstance(value, accepted) and isinstance(value, bool) == (kind is bool)
            return [] if fits else [wrong_value(key, value, f"must be {expected}")]
    return []


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
        _check_sampling(recipe),
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
    yield from _check_soft_targets(recipe, loss)
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


def _check_soft_targets(recipe: Recipe, loss: Loss) -> Iterator[str]:
    """Refuses distributions as targets where the loss, or another key, does not take them."""
    for key, value in recipe.soft_keys.items():
        if recipe.loss.targets == "posterior":
            reason = 'has no effect with loss.targets = "posterior", whose targets are two labels; '
            yield wrong_value(key, value, f"{reason}remove one of the two")
    if not recipe.soft_keys:
        return
    if recipe.distribution_column is not None and recipe.data.label_noise > 0:
        remedy = "has no effect with data.distribution_column, which replaces the labels; remove it"
        yield wrong_value("data.label_noise", recipe.data.label_noise, remedy)
    try:
        losses = loss(torch.tensor(LOGITS), torch.tensor([[0.7, 0.3], [0.5, 0.5]]))
    except (IndexError, RuntimeError, TypeError, ValueError) as error:
        listed = " and ".join(recipe.soft_keys)
        remedy = f"choose another loss, or remove {listed}"
        yield f'[loss] of name "{recipe.loss.name}": {error}; {remedy}'
    else:
        if losses.shape != (2,):
            shape = tuple(losses.shape)
            yield f'[loss] of name "{recipe.loss.name}": shape {shape} for 2 distributions'


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
    if recipe.loss.name == "entropy_regularised" and regulariser.alpha > 0:
        yield wrong_value(
            "loss.name",
            "entropy_regularised",
            f"subtracts the entropy that regulariser.alpha = {regulariser.alpha:g} subtracts; "
            "choose one of the two",
        )


def _check_sampling(recipe: Recipe) -> Iterator[str]:
    if recipe.sampling.order != "random" and recipe.data.kind == "trees":
        remedy = "has no meaning for trees, whose phrases are not scored; remove it"
        yield wrong_value("sampling.order", recipe.sampling.order, remedy)


def _check_final(recipe: Recipe) -> Iterator[str]:
    if recipe.training.final == "best" and recipe.data.validation == 0:
        remedy = "needs validation data; make data.validation 0.1"
        yield wrong_value("training.final", recipe.training.final, remedy)
