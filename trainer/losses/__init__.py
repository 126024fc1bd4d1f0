"""Losses by name: logits and targets in, one loss per sample out.

A loss with memory is an object with those of these hooks that it needs; the loop calls whichever
exist, with these arguments:

- `before_training(sample_ids)`: all training samples, once.
- `before_epoch(epoch, epochs)`: counted from zero.
- `before_batch(sample_ids)`: the samples of the logits to come.
- `after_batch(correct)`: after the step, which of them were predicted right.
- `after_epoch(confidences, correct)`: of the validation pass at the end of an epoch.
- `state_dict()` and `load_state_dict(state)`: for checkpoints.

Losses work in the dtype of the logits. Pass float32 where the model computes in less.
"""

import inspect
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor

from trainer.losses.adafocal import AdaFocal
from trainer.losses.brier import brier, bsce, bsce_gra
from trainer.losses.correctness_ranking import CorrectnessRanking
from trainer.losses.cross_entropy import (
    cross_entropy,
    entropy_regularised,
    label_smoothing,
    logit_l1,
    poly_loss,
)
from trainer.losses.dual_focal import dual_focal, dual_focal_gra
from trainer.losses.focal import (
    ScheduledFocal,
    flsd_53,
    flsd_53_gra,
    flsd_532,
    focal,
    focal_gra,
    lambert_focal,
)
from trainer.losses.mmce import mmce, mmce_weighted

Loss = Callable[[Tensor, Tensor], Tensor]

# Functions `(logits, targets, **constants)`.
LOSSES: dict[str, Callable[..., Tensor]] = {
    "brier": brier,
    "bsce": bsce,
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


def loss_constants(name: str) -> dict[str, Any]:
    """The constants of a loss and their defaults.

    Args:
        name: A key of `LOSSES` or `LOSSES_WITH_MEMORY`.

    Returns:
        Default values by name.

    Raises:
        ValueError: No loss has that name.
    """
    known = LOSSES | LOSSES_WITH_MEMORY
    if name not in known:
        raise ValueError(f"no loss {name!r}; choose one of {', '.join(sorted(known))}")
    parameters = inspect.signature(known[name]).parameters.values()
    return {
        parameter.name: parameter.default
        for parameter in parameters
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }


def make_loss(name: str, **constants: object) -> Loss:
    """A loss ready to be called with logits and targets, with a fresh memory if it has one.

    Args:
        name: A key of `LOSSES` or `LOSSES_WITH_MEMORY`.
        **constants: Those of the loss that differ from their defaults.

    Returns:
        From logits of shape (samples, classes) and targets of shape (samples,) to losses of
        shape (samples,).

    Raises:
        ValueError: No loss has that name, or it has no such constant.
    """
    known = loss_constants(name)
    unknown = sorted(constants.keys() - known.keys())
    if unknown:
        takes = f"choose from {', '.join(sorted(known))}" if known else "it takes none"
        raise ValueError(f"loss {name!r} has no constant {unknown[0]!r}; {takes}")
    if name in LOSSES:
        return partial(LOSSES[name], **constants)
    return LOSSES_WITH_MEMORY[name](**constants)
