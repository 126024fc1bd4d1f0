"""`train`: a recipe and parts of one's own in, a trained classifier and its metrics out.

The parts of a recipe that a program passes as objects, and the names they have in it.

The progress of a run that Python started, in a terminal or a notebook.
"""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from difficulty_service.base.errors import ConfigError, DatasetError
from difficulty_service.interface.arrays import read_arrays
from difficulty_service.interface.tables import is_arrow, is_of
from trainer import run_folder
from trainer.config import Recipe
from trainer.own_code import OBJECT_PREFIX, describe_own, is_object, known_objects, name_of
from trainer.recipes.file import changed_recipe, effective_values, read_values
from trainer.recipes.overrides import SCORE_KEYS, Change, refuse_repeated, with_scores
from trainer.runs.evaluate import load_model
from trainer.runs.train import RunCallbacks, RunRequest, run_seed, stop_on_signals
from trainer.training.state import TrainingProgress
from trainer.weights.formula import WeightsDistribution

FEATURE_DIMENSIONS = 2
PAIR, TRIPLE = 2, 3

Data = Any
"""A location; a tuple of features, labels and perhaps ids; a tuple of an array of images and their
labels; or labelled images as `difficulty_service.score_dataset` takes them."""

Model = nn.Module | Callable[..., nn.Module] | str
Loss = Callable[..., Any] | str


@dataclass(frozen=True)
class Parts:
    """Parts of a recipe that replace what it names; None keeps that.

    Attributes:
        model: Network, function or class that makes one, or name.
        loss: Function, class, object or name.
        train: Training data.
        validation: Validation data, or the fraction to hold out.
        test: Test data.
    """

    model: Model | None = None
    loss: Loss | None = None
    train: Data = None
    validation: Data = None
    test: Data = None


@dataclass(frozen=True)
class ImageRows:
    """An array of images and their labels as a collection of pairs.

    Attributes:
        images: uint8: an array of shape (samples, height, width, 3), or a tensor of shape (samples,
            3, height, width).
        labels: Labels. Shape (samples,).
    """

    images: Any
    labels: Any

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[Any, Any]:
        """One image and its label."""
        return self.images[position], self.labels[position]


def name_parts(parts: Parts) -> tuple[list[Change], dict[str, Any]]:
    """Names the parts, so that a recipe can refer to them.

    Args:
        parts: Parts to use.

    Returns:
        Changes of the recipe, and objects by their name in it for
        `trainer.own_code.known_objects`.

    Raises:
        ConfigError: The datasets are of different kinds.
        DatasetError: Arrays do not fit together.
    """
    changes: list[Change] = []
    objects: dict[str, Any] = {}
    for table in ("model", "loss"):
        own = getattr(parts, table)
        if own is not None:
            name = own if isinstance(own, str) else name_of(own, table)
            changes.append(([table, "name"], name))
            objects |= {name: own} if is_object(name) else {}
    kinds = {}
    for split in ("train", "validation", "test"):
        value = getattr(parts, split)
        if isinstance(value, os.PathLike):
            value = os.fspath(value)
        if value is not None and not isinstance(value, str | float | int):
            name = f"{OBJECT_PREFIX}{split}"
            objects[name], kinds[split] = _open(value, split)
            value = name
        if value is not None:
            changes.append((["data", split], value))
    return changes + _kind_of(kinds), objects


def _open(value: Data, split: str) -> tuple[Any, str]:
    """The object to hold, and the kind of its samples."""
    is_arrays = isinstance(value, tuple) and len(value) in {PAIR, TRIPLE}
    held = is_arrays and (is_arrow(value[0]) or is_of(value[0], "datasets", "Column"))
    if not is_arrays or not (held or hasattr(value[0], "shape")):
        return value, "images"
    if held or len(value[0].shape) == FEATURE_DIMENSIONS:
        return read_arrays(
            value[0], value[1], value[2] if len(value) == TRIPLE else None
        ), "features"
    if len(value) != PAIR or len(value[0]) != len(value[1]):
        raise DatasetError(
            f"{split} is a tuple of {', '.join(f'{len(each):,}' for each in value)} entries",
            "pass a tuple of images and as many labels",
            parameter=split,
        )
    return ImageRows(*value), "images"


def _kind_of(kinds: Mapping[str, str]) -> list[Change]:
    """Changes of the keys that follow from the objects: the kind, and where images are kept."""
    if len(set(kinds.values())) > 1:
        raise ConfigError(
            "the datasets are of different kinds: "
            + ", ".join(f"{split} holds {kind}" for split, kind in kinds.items()),
            "pass arrays of features for all of them, or images for all of them",
        )
    kind = next(iter(kinds.values()), None)
    # Worker processes, which decode images that are not kept in memory, cannot see the objects.
    in_memory: list[Change] = [(["data", "in_memory"], True)] if kind == "images" else []
    return in_memory if kind is None else [(["data", "kind"], kind), *in_memory]


CALLER_OF_TRAIN = 5
"""Frames between a warning and the caller of `trainer.train`."""

SHOWN = {
    "train_loss": "loss {:.4f}",
    "validation_accuracy": "accuracy {:.1%}",
    "validation_adaptive_ece": "adaptive ECE {:.2%}",
}
"""Values of an epoch that the bar shows."""


@contextmanager
def watch(
    epochs: int, on_epoch: Callable[[dict[str, Any]], None] | None, *, shown: bool
) -> Iterator[RunCallbacks]:
    """Shows a progress bar, and lets Ctrl-C save and stop the run.

    Args:
        epochs: Number of epochs of the run.
        on_epoch: Called with the record of each epoch; None for nothing.
        shown: Whether to show the bar.
    """
    from tqdm.auto import tqdm

    with stop_on_signals() as received, tqdm(unit="sample", disable=not shown) as bar:

        def start(
            samples: int, progress: TrainingProgress, _weights: WeightsDistribution | None
        ) -> None:
            bar.reset(total=samples * epochs)
            bar.initial = samples * progress.epoch
            bar.update(bar.initial)
            bar.set_description(f"epoch {progress.epoch + 1}/{epochs}")

        def end_epoch(record: dict[str, Any]) -> None:
            values = [text.format(record[key]) for key, text in SHOWN.items() if key in record]
            bar.set_postfix_str(", ".join(values))
            bar.set_description(f"epoch {min(record['epoch'] + 1, epochs)}/{epochs}")
            if on_epoch is not None:
                on_epoch(record)

        yield RunCallbacks(
            on_start=start,
            on_step=bar.update,
            on_epoch=end_epoch,
            should_stop=lambda: received() != 0,
            on_warnings=_warn,
        )


def _warn(sentences: Sequence[str]) -> None:
    for sentence in sentences:
        warnings.warn(sentence, UserWarning, stacklevel=CALLER_OF_TRAIN)


RecipeLike = str | os.PathLike[str] | Mapping[str, Any] | Recipe
"""A TOML file, the name of a recipe, its values, or a recipe that is read."""

CALLER = 3
"""Frames between a warning and the caller of `train`."""

Scores = Any
"""A path of a score file, or scores of `difficulty_service.score` and its like."""


@dataclass(frozen=True)
class TrainedRun:
    """A finished run.

    Attributes:
        folder: Folder of its files, which `difficulty evaluate` and `difficulty compare` read as
            the folder above it.
        recipe: Recipe it was trained with.
        seed: Seed it was trained with.
        class_names: Name of the class of each logit.
        model: Network in evaluation mode; takes the samples as they are in the data, uint8 images
            of shape (samples, 3, height, width) or float32 features, and returns logits.
        metrics: Metrics by stage, as trained ("raw") and after temperature scaling, of the test
            samples, or else of the validation samples; fractions, nats and areas. Empty without
            either.
        history: Record of each epoch.
    """

    folder: Path
    recipe: Recipe
    seed: int
    class_names: tuple[str, ...]
    model: nn.Module
    metrics: Mapping[str, Mapping[str, float | None]]
    history: list[dict[str, Any]]

    def __repr__(self) -> str:
        accuracy = self.metrics.get("raw", {}).get("accuracy")
        result = "" if accuracy is None else f", accuracy {accuracy:.1%}"
        return f"<TrainedRun {self.recipe.name}, seed {self.seed}{result}, in {self.folder}>"


def train(  # noqa: PLR0913 - one parameter for each part
    recipe: RecipeLike,
    *,
    model: Model | None = None,
    loss: Loss | None = None,
    train: Data = None,
    validation: Data = None,
    test: Data = None,
    scores: Scores = None,
    settings: Mapping[str, Any] | None = None,
    seed: int | None = None,
    out: str | os.PathLike[str] | None = None,
    device: str = "auto",
    resume: bool = False,
    progress: bool = True,
    on_epoch: Callable[[dict[str, Any]], None] | None = None,
) -> TrainedRun:
    """Trains a classifier as `difficulty train` does: the same checks, checkpoints and metrics.

    Args:
        recipe: A TOML file, the name of a recipe that ships with the package, or its values.
        model: A network, which is copied and starts from its own parameters; a class or function
            that takes `num_classes` by name; or a name as in a recipe. It gets inputs normalised by
            the statistics of the training samples and returns logits of shape (samples, classes).
            It replaces the recipe's [model].
        loss: A function of logits and targets that returns one loss per sample, a class of such
            objects, or a name as in a recipe. It replaces the recipe's loss and its constants.
        train: Training data: a location; a tuple of features, labels and perhaps ids, in any form
            that `difficulty_service.score` takes; a tuple of uint8 images and labels; or labelled
            images in any form that `difficulty_service.score_dataset` takes.
        validation: Validation data in the same forms, or the fraction of `train` to hold out.
        test: Test data in the same forms.
        scores: Score file, or scores of `difficulty_service`, for a recipe with
            regulariser.weights = "scores", with loss.weights or loss.targets by suspicion, or with
            sampling.order by difficulty. They are joined by sample id.
        settings: Other keys of the recipe, such as {"training.epochs": 3}; None removes a key.
        seed: Seed of this run; None for the first of the recipe.
        out: Folder of the run; None for `runs/` and the name of the recipe.
        device: "auto", "cpu", "cuda", ...
        resume: Whether to continue a run that was interrupted, given the same arguments.
        progress: Whether to show a progress bar.
        on_epoch: Called with the record of each epoch.

    Raises:
        ConfigError: The recipe is invalid, or does not fit the data or the parts.
        DatasetError: The data cannot be read.
        TrainingError: The folder already holds a run, or not the run to resume; or the loss is no
            longer finite.
        UnmatchedScores: Scores and samples do not fit together.
        KeyboardInterrupt: Ctrl-C stopped the run, which is saved; `resume=True` continues it.
    """
    values, source = _values(recipe)
    changes, objects = name_parts(Parts(model, loss, train, validation, test))
    changes += [(_keys(key), value) for key, value in (settings or {}).items()]
    folder = (
        Path(out)
        if out is not None
        else Path("runs") / str((settings or {}).get("name", values["name"]))
    )
    by_scores = SCORE_KEYS if scores is not None else ()
    refuse_repeated([*changes, *((_keys(key), scores) for key in by_scores)])
    with known_objects(objects):
        chosen = changed_recipe(values, changes, source)
        if scores is not None:
            chosen = with_scores(chosen, _score_file(scores, folder))
        _warn_of_own_code(chosen, model, loss)
        number = chosen.training.seeds[0] if seed is None else seed
        with watch(chosen.training.epochs, on_epoch, shown=progress) as callbacks:
            finished = run_seed(RunRequest(chosen, number, folder, device, resume), callbacks)
        if not finished:
            raise KeyboardInterrupt("the run is saved; resume=True continues it")
        return _open_run(run_folder.seed_folder(folder, number), device)


def _values(recipe: RecipeLike) -> tuple[dict[str, Any], str]:
    """The values of a recipe, to be changed, and what messages call it."""
    if isinstance(recipe, Recipe):
        return effective_values(recipe), recipe.name
    if isinstance(recipe, Mapping):
        return {"name": "run", **deepcopy(dict(recipe))}, "the recipe"
    path = os.fspath(recipe)
    return read_values(path), path


def _warn_of_own_code(recipe: Recipe, model: Model | None, loss: Loss | None) -> None:
    """Warns where a recipe names code; whoever passes code knows that it runs."""
    names = (
        each.name if part is None else ""
        for each, part in ((recipe.model, model), (recipe.loss, loss))
    )
    for sentence in describe_own(*names):
        warnings.warn(sentence, UserWarning, stacklevel=CALLER)


def _keys(name: str) -> list[str]:
    keys = name.split(".")
    if not all(keys) or len(keys) > 2:  # noqa: PLR2004 - a table and its key
        raise ConfigError(
            f"{name!r} is not a key of a recipe",
            "give TABLE.KEY, such as training.epochs",
            parameter="settings",
        )
    return keys


def _score_file(scores: Scores, folder: Path) -> str:
    if isinstance(scores, str | os.PathLike):
        return os.fspath(scores)
    if not hasattr(scores, "save"):
        raise ConfigError(
            f"scores are of type {type(scores).__name__}",
            "pass the path of a score file, or what difficulty_service.score returned",
            parameter="scores",
        )
    folder.mkdir(parents=True, exist_ok=True)
    scores.save(folder / "scores.parquet")
    return str(folder / "scores.parquet")


def _open_run(folder: Path, device: str) -> TrainedRun:
    trained = load_model(folder, device)
    return TrainedRun(
        folder=folder,
        recipe=trained.recipe,
        seed=trained.seed,
        class_names=trained.class_names,
        model=trained.model,
        metrics=run_folder.read_json(folder / run_folder.METRICS),
        history=run_folder.read_history(folder / run_folder.HISTORY),
    )
