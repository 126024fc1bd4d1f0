"""One run: one recipe and one seed, from its data to a folder with a model and its judgement."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from safetensors.torch import save
from torch import Tensor, nn

from difficulty_service.atomic_file import remove_leftovers, replacing
from difficulty_service.errors import ConfigError, TrainingError
from trainer import run_folder
from trainer.config import Recipe
from trainer.data import Splits, open_splits
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import judge, write_metrics
from trainer.recipes.file import recipe_as_dict
from trainer.runs.tensorboard import log_to_tensorboard
from trainer.samples import Samples
from trainer.training.accelerator import make_accelerator
from trainer.training.checkpoint import Progress, require_same_run
from trainer.training.loop import Material, Watch, train
from trainer.training.predict import predict
from trainer.training.state import make_learner, resume_learner, save_learner
from trainer.weights.formula import WeightsDistribution
from trainer.weights.from_scores import weights_of_samples

FREE_TO_CHANGE = (
    ("name",),
    ("data", "in_memory"),
    ("data", "max_pixels"),
    ("data", "workers"),
    ("regulariser", "scores"),
    ("training", "checkpoint_every"),
    ("training", "evaluation_batch_size"),
    ("training", "seeds"),
)
"""Keys of a recipe that a resumed run need not share; weights are compared by their values."""


@dataclass(frozen=True)
class Observer:
    """What the person at the terminal is told, and may ask for.

    Attributes:
        begin: Called before the first step: training samples, epochs, those done before, and the
            distribution of the weights if there are any.
        step: Called with the samples of each step.
        epoch: Called with the record of each epoch.
        stop: Whether to save and stop after this step.
    """

    begin: Callable[[int, Progress, WeightsDistribution | None], None]
    step: Callable[[int], None]
    epoch: Callable[[dict[str, Any]], None]
    stop: Callable[[], bool]


@dataclass(frozen=True)
class RunRequest:
    """What to run, and where.

    Attributes:
        recipe: Everything besides the seed.
        seed: Of split, order, augmentation and first parameters.
        folder: Of the run; the files of this seed lie in a folder of it.
        device: "auto", "cpu", "cuda", ...
        resume: Go on where an earlier run of the same recipe and seed stopped.
    """

    recipe: Recipe
    seed: int
    folder: Path
    device: str = "auto"
    resume: bool = False


def run_seed(request: RunRequest, observer: Observer) -> bool:
    """Trains, predicts and judges; a finished run that is resumed is left as it is.

    Args:
        request: What to run.
        observer: Told how it goes.

    Returns:
        Whether the run is finished; False when the observer asked to stop.

    Raises:
        TrainingError: The folder holds a run already, or another one than is to be resumed.
        ConfigError: The recipe does not fit the data.
        DatasetError: The data cannot be read.
        UnmatchedScores: Scores and samples do not fit together.
    """
    recipe, folder = request.recipe, run_folder.seed_folder(request.folder, request.seed)
    _require_fresh(folder, resume=request.resume)
    accelerator = make_accelerator(request.device, recipe.training.precision)
    splits = open_splits(recipe.data, request.seed, accelerator.device)
    weights, distribution = _weights(splits, recipe)
    identity = _identity(request, splits.train, weights)
    if request.resume and (folder / run_folder.METRICS).exists():
        saved = run_folder.read_json(folder / run_folder.RECIPE)
        require_same_run(folder / run_folder.RECIPE, saved.get("identity", {}), identity)
        return True
    learner = make_learner(recipe, request.seed, splits, accelerator)
    if request.resume and (folder / run_folder.CHECKPOINT).exists():
        learner = resume_learner(folder / run_folder.CHECKPOINT, identity, learner, accelerator)
    if accelerator.is_main_process:
        _describe(folder, request, identity, distribution)
        run_folder.write_inputs(folder / run_folder.INPUTS, splits.spec, splits.train.class_names)
    observer.begin(len(splits.train), learner.progress, distribution)

    def save() -> None:
        if accelerator.is_main_process:
            save_learner(folder, identity, learner, accelerator)
        accelerator.wait_for_everyone()

    with log_to_tensorboard(folder, learner.progress.epoch, accelerator) as log:

        def end_epoch(record: dict[str, Any]) -> None:
            log(record)
            observer.epoch(record)

        material = Material(splits.train, weights, splits.validation)
        watch = Watch(observer.step, end_epoch, save, observer.stop)
        finished = train(learner, material, recipe, request.seed, accelerator, watch)
    if finished:
        _finish(folder, learner.final_model(accelerator), splits, recipe, accelerator)
    return finished


def _require_fresh(folder: Path, *, resume: bool) -> None:
    if resume:
        remove_leftovers(folder)
    elif (folder / run_folder.RECIPE).exists():
        raise TrainingError(
            f"{folder} holds a run already; go on with it by --resume, or use another --out"
        )


def _weights(splits: Splits, recipe: Recipe) -> tuple[Tensor | None, WeightsDistribution | None]:
    """The weight of every training sample, if the recipe asks for any."""
    config = recipe.regulariser
    if config.weights == "constant":
        return None, None
    if config.scores is None:
        raise ConfigError(
            "regulariser.weights = 'scores', but no score file is named; add --scores "
            "scores.parquet, which `difficulty score` writes"
        )
    return weights_of_samples(
        splits.train.sample_ids, Path(config.scores), config, known_ids=splits.all_ids
    )


def _identity(request: RunRequest, samples: Samples, weights: Tensor | None) -> dict[str, Any]:
    """What a run depends on, as plain values."""
    recipe = recipe_as_dict(request.recipe)
    for *tables, key in FREE_TO_CHANGE:
        table = recipe
        for name in tables:
            table = table.get(name, {})
        table.pop(key, None)
    digest = hashlib.sha256("\n".join(samples.sample_ids).encode())
    digest.update(samples.labels.numpy().tobytes())
    return {
        "recipe": recipe,
        "seed": request.seed,
        "training_samples": digest.hexdigest(),
        "weights": hashlib.sha256(weights.numpy().tobytes()).hexdigest()
        if weights is not None
        else None,
    }


def _describe(
    folder: Path,
    request: RunRequest,
    identity: Mapping[str, Any],
    distribution: WeightsDistribution | None,
) -> None:
    """Writes what is run before it runs."""
    folder.mkdir(parents=True, exist_ok=True)
    recipe = recipe_as_dict(request.recipe)
    run_folder.write_json(
        folder / run_folder.RECIPE, {"recipe": recipe, "seed": request.seed, "identity": identity}
    )
    if distribution is not None:
        run_folder.write_json(folder / run_folder.WEIGHTS, distribution.as_dict())


def _finish(
    folder: Path, model: nn.Module, splits: Splits, recipe: Recipe, accelerator: Accelerator
) -> None:
    """Keeps the model, what it predicts, and the judgement of that; the judgement last."""
    files = {run_folder.VALIDATION: splits.validation, run_folder.TEST: splits.test}
    predictions = {
        name: predictions_of(model, samples, recipe, accelerator)
        for name, samples in files.items()
        if samples is not None
    }
    if not accelerator.is_main_process:
        return
    state = {name: value.contiguous().cpu() for name, value in model.state_dict().items()}
    with replacing(folder / run_folder.MODEL) as temporary:
        # Safetensors' own writing makes files that only their owner can read.
        temporary.write_bytes(save(state))
    for name, said in predictions.items():
        write_predictions(folder / name, said)
    write_metrics(folder / run_folder.METRICS, _judgement(predictions))


def _judgement(predictions: Mapping[str, Predictions]) -> dict[str, Any]:
    """Metrics of the test samples, or of the validation samples where there are no others."""
    test, validation = (predictions.get(name) for name in (run_folder.TEST, run_folder.VALIDATION))
    if test is None:
        # A temperature fitted to the very samples that it is judged on would look too good.
        return {} if validation is None else judge(validation.logits, validation.targets)
    held_out = None if validation is None else (validation.logits, validation.targets)
    return judge(test.logits, test.targets, held_out)


def predictions_of(
    model: nn.Module, samples: Samples, recipe: Recipe, accelerator: Accelerator
) -> Predictions:
    """What a model says about a split."""
    logits = predict(
        model,
        samples.inputs,
        len(samples),
        recipe.training.evaluation_batch_size,
        accelerator,
        channels_last=recipe.training.channels_last,
    )
    return Predictions(samples.sample_ids, logits, samples.labels)
