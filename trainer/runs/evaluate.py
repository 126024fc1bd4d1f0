"""Evaluates a finished run: its predictions, other data, OOD data and corrupted images."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import Tensor

from difficulty_service.base.errors import ConfigError, Setting, TrainingError
from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from trainer import run_folder
from trainer.data import match_classes, open_samples, open_test_images
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.evaluation.record import (
    MetricValues,
    NamedCurve,
    evaluate_ood,
    evaluate_predictions,
    ood_curves,
)
from trainer.metrics.bootstrap import Resampling
from trainer.runs.model_file import SavedModel, read_model
from trainer.samples import Inputs, Samples
from trainer.training.accelerator import make_accelerator, predict_split

Record = dict[str, MetricValues]
"""Metrics of each stage, as `evaluate_predictions` returns them."""


@dataclass(frozen=True)
class TrainedModel(SavedModel):
    """A classifier in evaluation mode, at the end of its run, in the folder of its seed.

    `on_open` is called with the samples of each dataset that is opened for an evaluation.
    """

    folder: Path
    accelerator: Accelerator
    on_open: Callable[[Samples], None] = lambda _samples: None

    def predict(self, samples: Samples) -> Tensor:
        """Computes the logits of every sample, float32 on the CPU. Shape (samples, classes)."""
        return predict_split(self.model, samples, self.recipe.training, self.accelerator)


@dataclass(frozen=True)
class DatasetChoice:
    """A dataset to evaluate on, in any form that `difficulty score` takes."""

    location: str
    split: str | None = None
    label_column: str | None = None


@dataclass(frozen=True)
class CorruptedInputs:
    """Images of a split, all with the same corruption."""

    inputs: Inputs
    name: str
    severity: int
    seed: int

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Yields the images of the plan, corrupted; see `Inputs.batches`."""
        for images in self.inputs.batches(plan, draws):
            yield corrupt(images, self.name, self.severity, self.seed)


def load_model(folder: Path, device: str) -> TrainedModel:
    """Loads the model of a finished seed."""
    saved = read_model(folder)
    accelerator = make_accelerator(device, saved.recipe.training.precision)
    saved.model.to(accelerator.device).eval()
    return TrainedModel(**vars(saved), folder=folder, accelerator=accelerator)


def evaluate_saved_predictions(folder: Path, resampling: Resampling) -> Record:
    """Computes every metric of the predictions that a run saved, with bootstrap intervals."""
    predictions, validation = saved_predictions(folder)
    return evaluate_predictions(predictions.logits, predictions.targets, validation, resampling)


def saved_predictions(folder: Path) -> tuple[Predictions, tuple[Tensor, Tensor] | None]:
    """Reads the predictions that a run is evaluated on, and those to fit temperatures on.

    A run without test data is evaluated on its validation samples; a temperature fitted on the same
    samples would look too good, so there are none to fit on.
    """
    test, validation = folder / run_folder.TEST, folder / run_folder.VALIDATION
    if test.exists():
        return read_predictions(test), validation_predictions(folder)
    if validation.exists():
        return read_predictions(validation), None
    raise TrainingError(f"{folder} has no test data", "name a dataset with ", Setting("data"))


def validation_predictions(folder: Path) -> tuple[Tensor, Tensor] | None:
    """Reads the logits and targets to fit temperatures on; None where none were held out."""
    path = folder / run_folder.VALIDATION
    if not path.exists():
        return None
    predictions = read_predictions(path)
    return predictions.logits, predictions.targets


def evaluate_on_dataset(
    trained: TrainedModel, choice: DatasetChoice, resampling: Resampling
) -> tuple[Record, Predictions]:
    """Computes every metric on another dataset of the same classes, and returns the predictions."""
    samples = match_classes(_open(trained, choice), trained.class_names, choice.location)
    trained.on_open(samples)
    logits = trained.predict(samples)
    validation = validation_predictions(trained.folder)
    record = evaluate_predictions(logits, samples.labels, validation, resampling)
    return record, Predictions(samples.sample_ids, logits, samples.labels)


def evaluate_ood_dataset(
    trained: TrainedModel, location: str, resampling: Resampling | None = None
) -> tuple[dict[str, Any], list[NamedCurve]]:
    """Measures how well the model separates the samples of a dataset from those of its test set.

    Returns the record of `evaluate_ood`, and the ROC curve of every score at every stage.
    """
    path = trained.folder / run_folder.TEST
    if not path.exists():
        raise TrainingError(
            f"{trained.folder} has no test data to compare {location!r} with",
            "train with data.test",
        )
    samples = _open(trained, DatasetChoice(location))
    trained.on_open(samples)
    ood_logits, id_logits = trained.predict(samples), read_predictions(path).logits
    validation = validation_predictions(trained.folder)
    curves = ood_curves(id_logits, ood_logits, location, validation)
    return evaluate_ood(id_logits, ood_logits, validation, resampling), curves


def evaluate_corruptions(
    trained: TrainedModel, advance: Callable[[], None]
) -> dict[str, dict[str, Record]]:
    """Computes every metric on the test images with every corruption at every severity."""
    data = trained.recipe.data
    samples = (
        open_test_images(data, trained.spec, trained.accelerator.device, trained.class_names)
        if data.kind == "images"
        else None
    )
    if samples is None:
        raise ConfigError(
            "corruptions need a recipe of images with data.test, and this one has kind "
            f"{data.kind!r} and test {data.test!r}",
            "leave out ",
            Setting("corruptions", value=True),
            parameter="corruptions",
        )
    trained.on_open(samples)
    validation = validation_predictions(trained.folder)
    records: dict[str, dict[str, Record]] = {}
    for name in CORRUPTIONS:
        for severity in SEVERITIES:
            inputs = CorruptedInputs(samples.inputs, name, severity, trained.seed)
            logits = trained.predict(replace(samples, inputs=inputs))
            record = evaluate_predictions(logits, samples.labels, validation)
            records.setdefault(name, {})[str(severity)] = record
            advance()
    return records


def _open(trained: TrainedModel, choice: DatasetChoice) -> Samples:
    return open_samples(
        trained.recipe.data,
        choice.location,
        trained.spec,
        trained.accelerator.device,
        split=choice.split,
        label_column=choice.label_column,
    )
