"""Runs a seed of a recipe on the CPU, and records or stops it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.config import Recipe
from trainer.runs.train import RunCallbacks, RunRequest, run_seed
from trainer.training.state import TrainingProgress
from trainer.weights.formula import WeightsDistribution


@dataclass
class RunRecorder:
    """Callbacks that record their calls, and stop the run after some steps."""

    stop_after: int | None = None
    started_at: tuple[int, int] | None = None
    steps: list[int] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)

    def callbacks(self) -> RunCallbacks:
        return RunCallbacks(self.start, self.steps.append, self.epochs.append, self.stop)

    def start(
        self, _samples: int, progress: TrainingProgress, _weights: WeightsDistribution | None
    ) -> None:
        self.started_at = (progress.epoch, progress.step)

    def stop(self) -> bool:
        return self.stop_after is not None and len(self.steps) >= self.stop_after


def run(
    recipe: Recipe, folder: Path, *recorders: RunRecorder, resume: bool = False, seed: int = 0
) -> bool:
    """Runs a seed of a recipe; whether it is finished."""
    (recorder,) = recorders or (RunRecorder(),)
    return run_seed(RunRequest(recipe, seed, folder, "cpu", resume), recorder.callbacks())


def finish(recipe: Recipe, folder: Path, *, stop: bool = False) -> Path:
    """Runs seed 0 of a recipe; the folder of its files."""
    callbacks = RunCallbacks(should_stop=lambda: stop)
    finished = run_seed(RunRequest(recipe, 0, folder, "cpu"), callbacks)
    assert finished is not stop
    return folder / "seed-0"
