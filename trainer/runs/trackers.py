"""Trackers of Accelerate, such as TensorBoard, Weights & Biases and MLflow, that follow a run."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from accelerate.tracking import LOGGER_TYPE_TO_CLASS, GeneralTracker, get_available_trackers
from accelerate.utils import LoggerType

from difficulty_service.base.errors import TrainingError
from difficulty_service.base.wording import flatten
from trainer.config import Recipe
from trainer.recipes.file import effective_values
from trainer.run_folder import TENSORBOARD


def require_trackers(names: Sequence[str]) -> None:
    """Refuses trackers that cannot be used.

    Raises:
        TrainingError: A tracker is unknown, or its package is not installed.
    """
    known = sorted(map(str, LOGGER_TYPE_TO_CLASS))
    available = {str(each) for each in get_available_trackers()}
    for name in names:
        if name not in known:
            raise TrainingError(
                f"training.trackers names {name!r}, which Accelerate does not know",
                f"choose from {', '.join(known)}",
            )
        if name in set(map(str, LoggerType)) - available:
            raise TrainingError(
                f"training.trackers names {name!r}, whose package is not installed",
                "install it, or leave that tracker out",
            )


@contextmanager
def track(
    recipe: Recipe, seed: int, folder: Path, epochs_done: int, accelerator: Accelerator
) -> Iterator[Callable[[dict[str, Any]], None]]:
    """Starts the trackers of a recipe; yields a function that takes the record of each epoch.

    Args:
        recipe: Recipe of the run, whose name is that of the project.
        seed: Seed of the run.
        folder: Folder of the seed, where trackers that keep files have theirs.
        epochs_done: Number of epochs that a run that resumes has done.
        accelerator: Only its main process tracks.
    """
    if not accelerator.is_main_process:
        yield lambda _: None
        return
    trackers = [
        _start(name, recipe, seed, folder, epochs_done) for name in recipe.training.trackers
    ]

    def log(record: dict[str, Any]) -> None:
        values = {
            name.replace("_", "/", 1): value
            for name, value in record.items()
            if name != "epoch" and value is not None
        }
        for tracker in trackers:
            tracker.log(values, step=record["epoch"])

    try:
        yield log
    finally:
        for tracker in trackers:
            tracker.finish()


def _start(name: str, recipe: Recipe, seed: int, folder: Path, epochs_done: int) -> GeneralTracker:
    kind = LOGGER_TYPE_TO_CLASS[name]
    if name == "tensorboard":
        # What an interrupted run has logged after its checkpoint disappears.
        tracker = kind(TENSORBOARD, folder, purge_step=epochs_done + 1)
        tracker.start()
        return tracker
    tracker = kind(recipe.name, *([folder] if kind.requires_logging_directory else []))
    tracker.start()
    tracker.store_init_configuration(_configuration(recipe, seed))
    return tracker


def _configuration(recipe: Recipe, seed: int) -> dict[str, Any]:
    """The keys of a recipe that have an effect, and the seed."""
    values = flatten(effective_values(recipe)) | {"seed": seed}
    return {key: value if _is_plain(value) else str(value) for key, value in values.items()}


def _is_plain(value: object) -> bool:
    return isinstance(value, bool | int | float | str)
