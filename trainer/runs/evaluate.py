"""Judges a finished run again: on other data, on out-of-distribution data, on corrupted images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from safetensors.torch import load_file
from torch import Tensor, nn

from difficulty_service.errors import ConfigError, TrainingError
from trainer import run_folder
from trainer.config import ModelConfig, Recipe
from trainer.data import match_classes, open_samples, open_test_images
from trainer.evaluation.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.evaluation.record import Measures, judge, judge_ood
from trainer.metrics.bootstrap import Resampling
from trainer.models import build_model
from trainer.recipes.file import recipe_from_dict
from trainer.samples import Inputs, InputSpec, Samples
from trainer.training.accelerator import make_accelerator
from trainer.training.predict import predict

Record = dict[str, Measures]

FIRST_PARAMETERS = {"pretrained", "checkpoint", "embeddings"}
"""Options of models that only say where their first parameters come from."""


@dataclass(frozen=True)
class TrainedModel:
    """A classifier as its run left it, and what it was made for.

    Attributes:
        folder: Of its seed.
        recipe: That it learned by.
        seed: Of its run.
        spec: Of the inputs it takes.
        class_names: Name of each logit.
        model: In evaluation mode, on the accelerator's device.
        accelerator: Of this process.
    """

    folder: Path
    recipe: Recipe
    seed: int
    spec: InputSpec
    class_names: tuple[str, ...]
    model: nn.Module
    accelerator: Accelerator

    def predict(self, samples: Samples) -> Tensor:
        """Logits of every sample, float32 on the CPU. Shape (samples, classes)."""
        return predict(
            self.model,
            samples.inputs,
            len(samples),
            self.recipe.training.evaluation_batch_size,
            self.accelerator,
            channels_last=self.recipe.training.channels_last,
        )


@dataclass(frozen=True)
class DatasetChoice:
    """A dataset to judge on, as the command line names it.

    Attributes:
        location: As `difficulty score` takes it.
        split: Sub-folder or named split.
        label_column: None finds it.
    """

    location: str
    split: str | None = None
    label_column: str | None = None


@dataclass(frozen=True)
class CorruptedInputs:
    """Images of a split, each corrupted in the same way."""

    inputs: Inputs
    name: str
    severity: int
    seed: int

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """The images of the plan, corrupted; see `Inputs`."""
        for images in self.inputs.batches(plan, draws):
            yield corrupt(images, self.name, self.severity, self.seed)


def load_model(folder: Path, device: str) -> TrainedModel:
    """The model of a finished seed.

    Args:
        folder: Of the seed.
        device: "auto", "cpu", "cuda", ...

    Raises:
        TrainingError: The run is not finished, or its files are damaged.
    """
    recipe, seed = _read_recipe(folder / run_folder.RECIPE)
    spec, class_names = run_folder.read_inputs(folder / run_folder.INPUTS)
    accelerator = make_accelerator(device, recipe.training.precision)
    model = build_model(_without_files(recipe.model), spec, len(class_names))
    path = folder / run_folder.MODEL
    try:
        model.load_state_dict(load_file(path))
    except FileNotFoundError:
        raise TrainingError(f"{path} is missing; finish the run with --resume") from None
    except Exception as error:  # safetensors and torch raise kinds of their own
        raise TrainingError(f"{path} is damaged ({error}); train again") from error
    model = model.to(accelerator.device).eval()
    return TrainedModel(folder, recipe, seed, spec, class_names, model, accelerator)


def judge_stored(folder: Path, resampling: Resampling) -> Record:
    """Every metric of the predictions that a run kept, with bootstrap intervals.

    Args:
        folder: Of the seed.
        resampling: Of the intervals.

    Raises:
        TrainingError: The run is not finished, or kept no predictions.
    """
    validation = _validation(folder)
    path = folder / run_folder.TEST
    if not path.exists():
        if validation is None:
            raise TrainingError(f"{folder} has no test data; name some with --data")
        return judge(*validation, resampling=resampling)
    said = read_predictions(path)
    return judge(said.logits, said.targets, validation, resampling)


def judge_on(
    trained: TrainedModel, choice: DatasetChoice, resampling: Resampling
) -> tuple[Record, Predictions]:
    """Every metric on another dataset of the same classes, and the predictions.

    Raises:
        DatasetError: It cannot be read, or has other classes.
    """
    samples = _open(trained, choice)
    samples = match_classes(samples, trained.class_names, choice.location)
    logits = trained.predict(samples)
    said = Predictions(samples.sample_ids, logits, samples.labels)
    return judge(logits, samples.labels, _validation(trained.folder), resampling), said


def judge_against(trained: TrainedModel, location: str) -> dict[str, Any]:
    """How well the model tells the samples of a dataset from those of its test set.

    Raises:
        TrainingError: The run has no test predictions.
        DatasetError: The dataset cannot be read.
    """
    path = trained.folder / run_folder.TEST
    if not path.exists():
        raise TrainingError(
            f"{trained.folder} has no test data to tell {location!r} from; train with data.test"
        )
    own = read_predictions(path)
    return judge_ood(own.logits, trained.predict(_open(trained, DatasetChoice(location))))


def judge_corrupted(
    trained: TrainedModel, advance: Callable[[], None]
) -> dict[str, dict[str, Record]]:
    """Every metric on the test images, corrupted in every way at every severity.

    Args:
        trained: A classifier of images.
        advance: Called after each of them.

    Returns:
        A record by corruption and severity.

    Raises:
        ConfigError: The model does not learn from images, or its recipe names no test dataset.
    """
    data = trained.recipe.data
    samples = (
        open_test_images(data, trained.spec, trained.accelerator.device, trained.class_names)
        if data.kind == "images"
        else None
    )
    if samples is None:
        raise ConfigError(
            "--corruptions needs a recipe of images with data.test, and this one has kind "
            f"{data.kind!r} and test {data.test!r}; leave it out"
        )
    validation = _validation(trained.folder)
    records: dict[str, dict[str, Record]] = {}
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            inputs = CorruptedInputs(samples.inputs, name, severity, trained.seed)
            logits = trained.predict(replace(samples, inputs=inputs))
            record = judge(logits, samples.labels, validation)
            records.setdefault(name, {})[str(severity)] = record
            advance()
    return records


def _read_recipe(path: Path) -> tuple[Recipe, int]:
    """What a seed learned by, and its number."""
    described = run_folder.read_json(path)
    try:
        return recipe_from_dict(described["recipe"], str(path)), int(described["seed"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise TrainingError(f"{path} is damaged ({error!r}); train again") from error


def _open(trained: TrainedModel, choice: DatasetChoice) -> Samples:
    return open_samples(
        trained.recipe.data,
        choice.location,
        trained.spec,
        trained.accelerator.device,
        split=choice.split,
        label_column=choice.label_column,
    )


def _validation(folder: Path) -> tuple[Tensor, Tensor] | None:
    path = folder / run_folder.VALIDATION
    if not path.exists():
        return None
    said = read_predictions(path)
    return said.logits, said.targets


def _without_files(config: ModelConfig) -> ModelConfig:
    """The same network without the files that its first parameters came from."""
    kept = {name: value for name, value in config.options.items() if name not in FIRST_PARAMETERS}
    return replace(config, options=kept)
