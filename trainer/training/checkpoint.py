"""Checkpoints, from which a run resumes as if it had never stopped."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from difficulty_service.base.checksums import add_checksum, verify_zip
from difficulty_service.base.errors import Setting, TrainingError
from difficulty_service.base.files import replacing
from difficulty_service.base.wording import differences

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
    """A run after one step; what the run does not have is empty.

    Another run, by its identity, cannot resume here.
    """

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
