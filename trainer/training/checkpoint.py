"""Saves a run so that it goes on as if it had never stopped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from difficulty_service.atomic_file import replacing
from difficulty_service.errors import TrainingError

VERSION = 1


@dataclass
class Progress:
    """How far a run is; the loop moves it on.

    Attributes:
        epoch: Epochs finished.
        step: Steps done of the epoch that is not finished.
        loss: Sum over the samples of those steps.
        correct: Of those samples, how many were predicted right.
        seconds: Spent on the unfinished epoch before now.
        history: One record per finished epoch.
    """

    epoch: int = 0
    step: int = 0
    loss: float = 0.0
    correct: int = 0
    seconds: float = 0.0
    history: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True)
class Checkpoint:
    """A run at one step.

    Attributes:
        identity: What the run depends on; a run with another cannot go on from here.
        progress: How far it is.
        model: Parameters and buffers.
        optimiser: Its state.
        loss: Memory of the loss, empty if it has none.
        average: Moving average of the parameters, empty if none is kept.
        scaler: Of half precision, empty if none is used.
    """

    identity: Mapping[str, Any]
    progress: Progress
    model: Mapping[str, Tensor]
    optimiser: Mapping[str, Any]
    loss: Mapping[str, Any]
    average: Mapping[str, Any]
    scaler: Mapping[str, Any]


def save_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Writes a checkpoint whole or not at all, in place of the one before."""
    values = vars(checkpoint) | {"progress": vars(checkpoint.progress), "version": VERSION}
    with replacing(path) as temporary:
        torch.save(values, temporary)


def load_checkpoint(path: Path) -> Checkpoint:
    """Reads what `save_checkpoint` wrote, onto the CPU.

    Raises:
        TrainingError: It is damaged, or of another version.
    """
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except OSError:
        raise
    except Exception as error:  # torch raises a dozen kinds for a damaged file
        raise TrainingError(
            f"{path} cannot be read as a checkpoint ({type(error).__name__}: {error}); delete it "
            "and train from the start"
        ) from error
    version = values.pop("version", None) if isinstance(values, dict) else None
    if version != VERSION:
        raise TrainingError(
            f"{path} is a checkpoint of version {version}, this package reads {VERSION}; use the "
            "package that wrote it, or delete it and train from the start"
        )
    return Checkpoint(**(values | {"progress": Progress(**values["progress"])}))


def require_same_run(path: Path, saved: Mapping[str, Any], wanted: Mapping[str, Any]) -> None:
    """Refuses to go on with a run that was made otherwise.

    Args:
        path: Of the checkpoint.
        saved: Its identity, nested mappings of plain values.
        wanted: That of the run to go on.

    Raises:
        TrainingError: They differ; the message names each difference.
    """
    before, now = _flatten(saved), _flatten(wanted)
    names = sorted(before.keys() | now.keys())
    differences = [
        f"{name} was {before.get(name)!r}, now {now.get(name)!r}"
        for name in names
        if before.get(name) != now.get(name)
    ]
    if differences:
        raise TrainingError(
            f"{path} belongs to another run: {'; '.join(differences)}; go on with what it was "
            "made with, or use another --out"
        )


def _flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            flat |= _flatten(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat
