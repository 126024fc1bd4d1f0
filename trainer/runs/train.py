"""One run, of one recipe and one seed: from the data to a folder with the model and its metrics."""

import hashlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from accelerate import Accelerator
from torch import Tensor

from difficulty_service.base.devices import current
from difficulty_service.base.errors import ConfigError, Setting, TrainingError
from difficulty_service.base.files import remove_leftovers
from trainer import run_folder
from trainer.config import FREE_TO_CHANGE, LossConfig, Recipe
from trainer.data import Splits, open_splits
from trainer.recipes.file import recipe_as_dict
from trainer.runs.head import HeadRun, train_uncertainty
from trainer.runs.outcome import describe_objective, finish
from trainer.runs.trackers import require_trackers, track
from trainer.samples import Samples
from trainer.training.accelerator import any_process, emulated_precision, make_accelerator
from trainer.training.loop import TrainingCallbacks, train
from trainer.training.state import (
    TrainingProgress,
    make_train_state,
    require_same_run,
    resume_train_state,
    save_train_state,
)
from trainer.training.step import TrainingData
from trainer.training.supervision import TRUSTED, LabelBeliefs, Supervision
from trainer.transformers_files import encoder_of
from trainer.weights.formula import WeightsDistribution
from trainer.weights.from_scores import (
    difficulty_of_samples,
    warn_of_other_labels,
    weights_of_samples,
)
from trainer.weights.label_trust import label_beliefs
from trainer.weights.score_files import ScoreFiles, opening_once


@contextmanager
def stop_on_signals() -> Iterator[Callable[[], int]]:
    """Records SIGTERM and the first Ctrl-C; a second signal ends the process at once.

    The function that it yields returns the number of the received signal, 0 for none.
    """
    received = 0

    def record(number: int, _frame: FrameType | None) -> None:
        nonlocal received
        received = number
        # The second signal must not wait for the checkpoint.
        signal.signal(number, signal.SIG_DFL)

    if threading.current_thread() is not threading.main_thread():
        # In Python only the main thread can handle signals.
        yield lambda: 0
        return
    before = {number: signal.signal(number, record) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ignore(*_event: object) -> None:
    """A callback that does nothing."""


@dataclass(frozen=True)
class RunCallbacks:
    """Functions that a run calls, to show its progress and to be stopped; none by default.

    Attributes:
        on_start: Called before the first step with the number of training samples, the progress of
            the run that resumes, and the distribution of the weights if there are any.
        on_step: Called with the number of samples of each step.
        on_epoch: Called with the record of each epoch.
        should_stop: Whether to save and stop after this step.
        on_warnings: Called before `on_start` with the warnings about datasets and precision.
        on_head_epoch: Called with the record of each epoch of the uncertainty head.
    """

    on_start: Callable[[int, TrainingProgress, WeightsDistribution | None], None] = ignore
    on_step: Callable[[int], None] = ignore
    on_epoch: Callable[[dict[str, Any]], None] = ignore
    should_stop: Callable[[], bool] = lambda: False
    on_warnings: Callable[[Sequence[str]], None] = ignore
    on_head_epoch: Callable[[dict[str, Any]], None] = ignore


NO_CALLBACKS = RunCallbacks()


@dataclass(frozen=True)
class RunRequest:
    """A run to execute, whose files are in a folder of its seed inside `out`."""

    recipe: Recipe
    seed: int
    out: Path
    device: str = "auto"
    resume: bool = False


def run_seed(request: RunRequest, callbacks: RunCallbacks = NO_CALLBACKS) -> bool:
    """Trains, predicts and evaluates what is not finished; False when a callback stopped it."""
    recipe, folder = request.recipe, run_folder.seed_folder(request.out, request.seed)
    _require_fresh(folder, resume=request.resume)
    require_trackers(recipe.training.trackers)
    accelerator = make_accelerator(request.device, recipe.training.precision)
    with current(accelerator.device):
        return _run(request, folder, accelerator, callbacks)


def _run(
    request: RunRequest, folder: Path, accelerator: Accelerator, callbacks: RunCallbacks
) -> bool:
    """`run_seed` on the device of an accelerator."""
    recipe = request.recipe
    tokenizer = encoder_of(recipe.model.name)
    splits = open_splits(recipe.data, request.seed, accelerator.device, tokenizer)
    with opening_once(recipe.data) as score_files:
        weights, distribution = _weights(splits, recipe, score_files)
        beliefs = _beliefs(splits.train, recipe.loss, score_files)
        difficulty = _difficulty(splits, recipe, score_files)
        label_warnings = _warn_of_other_labels(splits.train, recipe, score_files)
    supervision = _supervision(beliefs, recipe.loss)
    identity = _identity(request, splits.train, weights, supervision, difficulty)
    if request.resume and (folder / run_folder.METRICS).exists():
        saved = run_folder.read_run(folder)
        require_same_run(folder / run_folder.RECIPE, saved["identity"], identity)
        return _train_head(request, splits, identity, accelerator, callbacks)
    state = make_train_state(recipe, request.seed, splits, accelerator)
    if request.resume and (folder / run_folder.CHECKPOINT).exists():
        state = resume_train_state(folder / run_folder.CHECKPOINT, identity, state, accelerator)
    if accelerator.is_main_process:
        folder.mkdir(parents=True, exist_ok=True)
        description = {"recipe": recipe_as_dict(recipe), "seed": request.seed, "identity": identity}
        run_folder.write_run(folder, description)
        if distribution is not None:
            run_folder.write_json(folder / run_folder.WEIGHTS, distribution.as_dict())
        objective = describe_objective(recipe, distribution, beliefs, score_files)
        run_folder.write_json(folder / run_folder.OBJECTIVE, objective)
        run_folder.write_inputs(folder / run_folder.INPUTS, splits.spec, splits.train.class_names)
        run_folder.write_errors(folder / run_folder.ERRORS, splits.skipped)
    callbacks.on_warnings((*splits.warnings, *label_warnings, *emulated_precision(accelerator)))
    callbacks.on_start(len(splits.train), state.progress, distribution)

    def save() -> None:
        save_train_state(folder, identity, state, accelerator)
        if accelerator.is_main_process and state.progress.loss_rows:
            run_folder.write_csv(folder / f"{recipe.loss.name}.csv", state.progress.loss_rows)
        accelerator.wait_for_everyone()

    with track(recipe, request.seed, folder, state.progress.epoch, accelerator) as log:

        def end_epoch(record: dict[str, Any]) -> None:
            log(record)
            callbacks.on_epoch(record)

        data = TrainingData(splits.train, weights, splits.validation, supervision, difficulty)
        loop_callbacks = TrainingCallbacks(
            callbacks.on_step, end_epoch, save, callbacks.should_stop
        )
        finished = train(state, data, recipe, request.seed, accelerator, loop_callbacks)
    if finished:
        finish(folder, state, splits, recipe, accelerator)
        return _train_head(request, splits, identity, accelerator, callbacks)
    return False


def _train_head(
    request: RunRequest,
    splits: Splits,
    identity: Mapping[str, Any],
    accelerator: Accelerator,
    callbacks: RunCallbacks,
) -> bool:
    """Trains the uncertainty head of a finished classifier, where the recipe has one."""
    if request.recipe.uncertainty.epochs == 0:
        return True
    folder, finished = run_folder.seed_folder(request.out, request.seed), False
    if accelerator.is_main_process:  # the head is small, and its batches need all their pairs
        run = HeadRun(folder, request.recipe, request.seed, splits, identity, accelerator.device)
        finished = train_uncertainty(run, callbacks.on_head_epoch, callbacks.should_stop)
    return any_process(finished, accelerator)


def _require_fresh(folder: Path, *, resume: bool) -> None:
    if resume:
        remove_leftovers(folder)
    elif (folder / run_folder.RECIPE).exists():
        raise TrainingError(
            f"{folder} already holds a run",
            "continue it with ",
            Setting("resume", value=True),
            ", or use another ",
            Setting("out"),
            parameter="out",
        )


def _weights(
    splits: Splits, recipe: Recipe, score_files: ScoreFiles
) -> tuple[Tensor | None, WeightsDistribution | None]:
    """The weight of every training sample, if the recipe has weights."""
    config = recipe.regulariser
    if config.weights == "constant" or config.alpha == 0:
        return None, None
    if config.scores is None:
        raise ConfigError(
            "regulariser.weights = 'scores', but no score file is named",
            "add ",
            Setting("scores", "scores.parquet"),
            ", which `difficulty score` writes",
            parameter="scores",
        )
    return weights_of_samples(
        splits.train.sample_ids, score_files(config.scores), config, known_ids=splits.all_ids
    )


def _difficulty(splits: Splits, recipe: Recipe, score_files: ScoreFiles) -> Tensor | None:
    """The difficulty of every training sample, if the recipe orders samples by it."""
    config = recipe.sampling
    if config.order == "random":
        return None
    if config.scores is None:
        raise ConfigError(
            f"sampling.order = '{config.order}', but no score file is named",
            "add ",
            Setting("scores", "scores.parquet"),
            ", which `difficulty score` writes",
            parameter="scores",
        )
    scores = score_files(config.scores)
    return difficulty_of_samples(
        splits.train.sample_ids, scores, config.column, known_ids=splits.all_ids
    )


def _warn_of_other_labels(
    samples: Samples, recipe: Recipe, score_files: ScoreFiles
) -> tuple[str, ...]:
    """What is to be said about the labels whose difficulty the recipe uses."""
    regulariser, sampling = recipe.regulariser, recipe.sampling
    used = []
    if regulariser.weights == "scores" and regulariser.alpha > 0:
        used.append(regulariser.scores)
    if sampling.order != "random":
        used.append(sampling.scores)
    return tuple(
        sentence
        for path in dict.fromkeys(used)
        if path is not None
        for sentence in warn_of_other_labels(samples, score_files(path))
    )


def _beliefs(samples: Samples, config: LossConfig, score_files: ScoreFiles) -> LabelBeliefs | None:
    """What is known about the labels of the training samples, if the recipe asks for it."""
    if not config.doubts_labels:
        return None
    if config.scores is None:
        raise ConfigError(
            "the loss depends on how likely labels are to be right, but no score file is named",
            "add ",
            Setting("scores", "scores.parquet"),
            ", which `difficulty score` writes",
            parameter="scores",
        )
    return label_beliefs(samples, score_files(config.scores), config)


def _supervision(beliefs: LabelBeliefs | None, config: LossConfig) -> Supervision:
    """How a recipe takes what is known about the labels."""
    if beliefs is None:
        return TRUSTED
    return beliefs.as_second_labels() if config.targets == "posterior" else beliefs.as_weights()


def fixed_part(recipe: Recipe) -> dict[str, Any]:
    """The keys of a recipe that must not change when a run resumes, as values of its file."""
    values = recipe_as_dict(recipe)
    for path in FREE_TO_CHANGE:
        *tables, key = path.split(".")
        table = values
        for name in tables:
            table = table.get(name, {})
        table.pop(key, None)
    # The head comes after the classifier and has an identity of its own.
    values.pop("uncertainty")
    return values


def _identity(
    request: RunRequest,
    samples: Samples,
    weights: Tensor | None,
    supervision: Supervision,
    difficulty: Tensor | None,
) -> dict[str, Any]:
    """Everything a run depends on, as plain values."""
    digest = hashlib.sha256("\n".join(samples.sample_ids).encode())
    digest.update(samples.labels.numpy().tobytes())
    if samples.distributions is not None:
        digest.update(samples.distributions.numpy().tobytes())
    return {
        "recipe": fixed_part(request.recipe),
        "seed": request.seed,
        "training_samples": digest.hexdigest(),
        "weights": _sha256(weights) if weights is not None else None,
        "difficulty": _sha256(difficulty) if difficulty is not None else None,
        "supervision": {
            name: _sha256(values)
            for name, values in vars(supervision).items()
            if values is not None
        },
    }


def _sha256(values: Tensor) -> str:
    return hashlib.sha256(values.numpy().tobytes()).hexdigest()
