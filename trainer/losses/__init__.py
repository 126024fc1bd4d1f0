"""Losses by name: logits and targets in, one loss per sample out.

Targets are class indices, or distributions over the classes (`trainer.losses.targets`) where the
loss has a meaning for them.

A loss with memory is an object with any of these hooks; the training loop calls those that exist:

- `before_training(sample_ids)`: once, with the ids of all training samples.
- `before_epoch(epoch, epochs)`: with the epoch, counted from zero, and their number.
- `before_batch(sample_ids)`: with the ids of the samples of the next logits.
- `after_batch(correct)`: after the step, with the correctness of each prediction.
- `after_epoch(confidences, correct)`: with the predictions on the validation samples.
- `epoch_rows()`: after that; mappings, one per row of the file of the loss in the run's folder.
- `state_dict()` and `load_state_dict(state)`: for checkpoints.

A name of the form `package.module:name` is a loss from outside the package.

Losses compute in the dtype of the logits. Pass float32 where the model computes in less.
"""

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from difficulty_service.base.errors import ConfigError
from difficulty_service.base.wording import did_you_mean
from trainer.losses.adafocal import AdaFocal
from trainer.losses.brier import brier, bsce, bsce_flsd_53, bsce_flsd_53_gra, bsce_gra
from trainer.losses.correctness_ranking import CorrectnessRanking
from trainer.losses.cross_entropy import (
    cross_entropy,
    entropy_regularised,
    label_smoothing,
    logit_l1,
    poly_loss,
)
from trainer.losses.focal import (
    ScheduledFocal,
    dual_focal,
    dual_focal_gra,
    flsd_53,
    flsd_53_gra,
    flsd_532,
    focal,
    focal_gra,
    lambert_focal,
)
from trainer.losses.mmce import mmce, mmce_weighted
from trainer.own_code import OwnSettings, find_own, is_own, settings_of

INPUTS = 2
"""Number of the first parameters of a function, logits and targets, that are no constants."""


def own_constants(name: str) -> OwnSettings:
    """The constants of a loss from outside the package."""
    own = find_own(name)
    if not inspect.isroutine(own):
        return settings_of(own, ())
    return settings_of(own, list(inspect.signature(own).parameters)[:INPUTS])


def own_loss(name: str, **constants: object) -> Callable[[Tensor, Tensor], Tensor]:
    """Makes a loss from outside the package; an object is copied, so that its memory is fresh.

    The name is that of a function `(logits, targets, **constants)`, of a class `(**constants)`
    whose objects are called with `(logits, targets)` and may have the hooks of a loss with memory,
    or of such an object. ValueError where it has parameters to be learned, which no optimiser would
    change.
    """
    own = find_own(name)
    if inspect.isroutine(own):
        return partial(own, **constants)
    loss: Any = own(**constants) if inspect.isclass(own) else copy.deepcopy(own)
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        raise ValueError("it has parameters of its own, and only those of the model are trained")
    made: Callable[[Tensor, Tensor], Tensor] = loss
    return made


Loss = Callable[[Tensor, Tensor], Tensor]

# Functions `(logits, targets, **constants)`.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "brier": brier,
    "bsce": bsce,
    "bsce_flsd_53": bsce_flsd_53,
    "bsce_flsd_53_gra": bsce_flsd_53_gra,
    "bsce_gra": bsce_gra,
    "cross_entropy": cross_entropy,
    "dual_focal": dual_focal,
    "dual_focal_gra": dual_focal_gra,
    "entropy_regularised": entropy_regularised,
    "flsd_53": flsd_53,
    "flsd_532": flsd_532,
    "flsd_53_gra": flsd_53_gra,
    "focal": focal,
    "focal_gra": focal_gra,
    "label_smoothing": label_smoothing,
    "lambert_focal": lambert_focal,
    "logit_l1": logit_l1,
    "mmce": mmce,
    "mmce_weighted": mmce_weighted,
    "poly_loss": poly_loss,
}

# Classes `(**constants)` whose objects are called with `(logits, targets)`.
LOSSES_WITH_MEMORY: dict[str, Callable[..., Loss]] = {
    "adafocal": AdaFocal,
    "correctness_ranking": CorrectnessRanking,
    "scheduled_focal": ScheduledFocal,
}


def call_hook(loss: object, name: str, *arguments: object) -> None:
    """Calls a hook of a loss, if the loss has it."""
    hook = getattr(loss, name, None)
    if hook is not None:
        hook(*arguments)


def loss_constants(name: str) -> dict[str, Any]:
    """The constants of a loss and their default values, by name.

    Args:
        name: A key of `LOSSES` or `LOSSES_WITH_MEMORY`, or `package.module:name`.

    Raises:
        ConfigError: No loss has that name, or one from outside the package cannot be found.
    """
    if is_own(name):
        return dict(own_constants(name).defaults)
    known = LOSSES | LOSSES_WITH_MEMORY
    if name not in known:
        raise ConfigError(
            f"no loss {name!r}",
            f"{did_you_mean(name, known)}choose one of {', '.join(sorted(known))}",
        )
    parameters = inspect.signature(known[name]).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def make_loss(name: str, **constants: object) -> Loss:
    """Builds a loss, with a fresh memory if it has one.

    Args:
        name: A key of `LOSSES` or `LOSSES_WITH_MEMORY`, or `package.module:name`.
        **constants: Constants of the loss that differ from their defaults.

    Returns:
        A function of logits of shape (samples, classes) and targets, indices of shape (samples,)
        or distributions of that of the logits, that returns losses of shape (samples,).

    Raises:
        ConfigError: No loss has that name, it has no such constant, or one from outside the
            package cannot be found.
    """
    known = loss_constants(name)
    unknown = sorted(constants.keys() - known.keys())
    if unknown and not (is_own(name) and own_constants(name).takes_any):
        takes = f"choose from {', '.join(sorted(known))}" if known else "it takes none"
        raise ConfigError(f"loss {name!r} has no constant {unknown[0]!r}", takes)
    if is_own(name):
        return own_loss(name, **constants)
    if name in LOSSES:
        return partial(LOSSES[name], **constants)
    return LOSSES_WITH_MEMORY[name](**constants)
