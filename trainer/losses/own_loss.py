"""Losses from outside the package."""

import copy
import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn

from trainer.own_code import Settings, find_own, settings_of

INPUTS = 2
"""Number of the first parameters of a function, logits and targets, that are no constants."""


def own_constants(name: str) -> Settings:
    """The constants of a loss from outside the package.

    Raises:
        ConfigError: It cannot be found.
    """
    own = find_own(name)
    if not inspect.isroutine(own):
        return settings_of(own, ())
    return settings_of(own, list(inspect.signature(own).parameters)[:INPUTS])


def own_loss(name: str, **constants: object) -> Callable[[Tensor, Tensor], Tensor]:
    """Makes a loss from outside the package.

    Args:
        name: Name in a recipe of a function `(logits, targets, **constants)`, of a class
            `(**constants)` whose objects are called with `(logits, targets)` and may have the hooks
            of a loss with memory, or of such an object.
        **constants: Its constants.

    Raises:
        ConfigError: It cannot be found.
        ValueError: It has parameters to be learned, which no optimiser would change.
    """
    own = find_own(name)
    if inspect.isroutine(own):
        return partial(own, **constants)
    loss: Any = own(**constants) if inspect.isclass(own) else copy.deepcopy(own)
    if isinstance(loss, nn.Module) and any(True for _ in loss.parameters()):
        raise ValueError("it has parameters of its own, and only those of the model are trained")
    made: Callable[[Tensor, Tensor], Tensor] = loss
    return made
