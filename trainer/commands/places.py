"""What trains a seed beside others, whatever machine it is on."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from difficulty_service.base.errors import DifficultyError
from difficulty_service.cli.console import err
from trainer.commands import STOPPED
from trainer.config import Recipe


@dataclass(frozen=True)
class SeedToTrain:
    """One seed of a run.

    Attributes:
        label: What its lines of output begin with.
    """

    label: str
    recipe: Recipe
    seed: int
    folder: Path
    resume: bool


class Running(Protocol):
    """A seed that trains."""

    def poll(self) -> int | None:
        """The exit code of its process; None until it has ended."""

    def stop(self) -> None:
        """Has the process save and end."""


class Places(Protocol):
    """Where seeds train."""

    @property
    def count(self) -> int:
        """Number of seeds that train at once."""

    def start(self, seed: SeedToTrain, place: int) -> Running:
        """Starts to train a seed at one of the places, which is free."""

    def wait(self, running: Sequence[Running], seconds: float) -> None:
        """Returns when a seed may have ended, or after some seconds."""


def train_one(seed: SeedToTrain, device: str) -> None:
    """Trains a seed and ends the process with its exit code."""
    from trainer.console import train_seed  # loads torch

    try:
        finished = train_seed(
            seed.recipe, seed.seed, seed.folder, device, resume=seed.resume, label=seed.label
        )
    except DifficultyError as error:
        sys.exit(print_error(seed, error))
    sys.exit(0 if finished else STOPPED)


def print_error(seed: SeedToTrain, error: DifficultyError) -> int:
    """Prints the error of a seed; the exit code that says so."""
    err.print(f"error: {seed.label}: {' '.join(str(error).split())}")
    return 1
