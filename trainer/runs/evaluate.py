"""Evaluates a finished run: its predictions, other data and OOD data."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import Tensor

from difficulty_service.base.errors import (
    ConfigError,
    DatasetError,
    FeatureStoreError,
    Setting,
    TrainingError,
)
from trainer import run_folder
from trainer.data import (
    match_classes,
    open_samples,
    open_splits,
    open_unlabelled,
)
from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.evaluation.record import (
    MetricValues,
    NamedCurve,
    evaluate_ood,
    evaluate_predictions,
    ood_curves,
)
from trainer.metrics.bootstrap import Resampling
from trainer.runs.last_features import FeatureDistances, fit_distances
from trainer.runs.model_file import SavedModel, read_model
from trainer.samples import Samples
from trainer.training.accelerator import make_accelerator, predict_split
from trainer.transformers_files import encoder_of

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

    @property
    def name(self) -> str:
        """The dataset in the record of a run."""
        return _name_of(self.location, self.split, self.label_column)


@dataclass(frozen=True)
class OodChoice:
    """A dataset of samples of no class that the model knows; its labels are ignored.

    Attributes:
        split: Sub-folder or named split, or of corrupted images the corruption and its severity.
        column: Column of a table with the images, texts or trees.
        title: Name in the record of a run; None is made of the others.
    """

    location: str
    split: str | None = None
    column: str | None = None
    title: str | None = None

    @property
    def name(self) -> str:
        """The dataset in the record of a run."""
        return self.title or _name_of(self.location, self.split, self.column)


def _name_of(location: str, *parts: str | None) -> str:
    return " ".join(part for part in (location, *parts) if part is not None)


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
    samples = open_chosen(trained, choice)
    logits = trained.predict(samples)
    validation = validation_predictions(trained.folder)
    record = evaluate_predictions(logits, samples.labels, validation, resampling)
    return record, Predictions(samples.sample_ids, logits, samples.labels)


def evaluate_ood_dataset(
    trained: TrainedModel,
    choice: OodChoice,
    resampling: Resampling | None = None,
    features: FeatureDistances | None = None,
) -> tuple[dict[str, Any], list[NamedCurve]]:
    """Measures how well the model separates the samples of a dataset from those of its test set.

    Returns the record of `evaluate_ood`, and the ROC curve of every score at every stage; those by
    Mahalanobis distances only with the features that `measure_features` returns.
    """
    id_logits = _test_predictions(trained, choice.location).logits
    with _options_of_ood():
        samples = open_unlabelled(
            trained.recipe.data,
            choice.location,
            trained.spec,
            trained.accelerator.device,
            split=choice.split,
            column=choice.column,
        )
    trained.on_open(samples)
    distances = None
    if features is None:
        ood_logits = trained.predict(samples)
    else:
        ood_logits, ood_distances = features.predict(samples)
        distances = features.distances, ood_distances
    validation = validation_predictions(trained.folder)
    curves = ood_curves(id_logits, ood_logits, choice.name, validation, distances)
    return evaluate_ood(id_logits, ood_logits, validation, resampling, distances), curves


def measure_features(trained: TrainedModel) -> FeatureDistances:
    """Fits Gaussians to the features of the training samples, and measures the test samples.

    Both are opened as the run opened them, so that their datasets must still be there.
    """
    saved = _test_predictions(trained, "other samples")
    tokenizer = encoder_of(trained.recipe.model.name)
    device = trained.accelerator.device
    splits = open_splits(trained.recipe.data, trained.seed, device, tokenizer)
    if splits.test is None or list(splits.test.sample_ids) != list(saved.sample_ids):
        raise TrainingError(
            f"the test data of {trained.folder} have changed since the run, and Mahalanobis "
            "distances are those of its samples",
            "leave out ",
            Setting("mahalanobis", value=True),
            parameter="mahalanobis",
        )
    return fit_distances(trained.model, splits, trained.recipe.training, trained.accelerator)


def _test_predictions(trained: TrainedModel, other: str) -> Predictions:
    """The predictions of the in-distribution samples."""
    path = trained.folder / run_folder.TEST
    if not path.exists():
        raise TrainingError(
            f"{trained.folder} has no test data to compare {other!r} with",
            "train with data.test",
        )
    return read_predictions(path)


OOD_OPTIONS = {
    "split": "ood_split",
    "column": "ood_column",
    "image_column": "ood_column",
    "text_column": "ood_column",
}
"""What chooses the samples of OOD data, by what chooses those of other data."""


@contextmanager
def _options_of_ood() -> Iterator[None]:
    """Names the options of OOD data in errors about them."""
    try:
        yield
    except (ConfigError, DatasetError, FeatureStoreError) as error:
        remedy = [
            Setting(OOD_OPTIONS.get(part.parameter, part.parameter), part.value)
            if isinstance(part, Setting)
            else part
            for part in error.remedy
        ]
        parameter = OOD_OPTIONS.get(error.parameter or "", error.parameter)
        raise type(error)(error.problem, *remedy, parameter=parameter) from error


def open_chosen(trained: TrainedModel, choice: DatasetChoice) -> Samples:
    """Opens a dataset of the classes of the model, with its class indices."""
    samples = open_samples(
        trained.recipe.data,
        choice.location,
        trained.spec,
        trained.accelerator.device,
        split=choice.split,
        label_column=choice.label_column,
    )
    matched = match_classes(samples, trained.class_names, choice.location)
    trained.on_open(matched)
    return matched
