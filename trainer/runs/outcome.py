"""The outcome of a run: its final model, the predictions of that model and their metrics."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from torch import nn

from trainer import run_folder
from trainer.config import Recipe
from trainer.data import Splits
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import MetricValues, evaluate_predictions, write_metrics
from trainer.runs.model_file import write_parameters
from trainer.samples import Samples
from trainer.training.predict import predict
from trainer.training.state import TrainState


def finish(
    folder: Path, state: TrainState, splits: Splits, recipe: Recipe, accelerator: Accelerator
) -> None:
    """Writes the model and its predictions, and last their metrics, which mark the run finished.

    Args:
        folder: Folder of the seed.
        state: State after the last epoch; with the best epoch, its model gets those parameters.
        splits: Data of the run.
        recipe: Recipe of the run.
        accelerator: Accelerator of this process.
    """
    model = state.final_model(accelerator)
    if state.best is not None:
        if accelerator.is_main_process:
            write_parameters(folder / run_folder.LAST_MODEL, model)
        model.load_state_dict(state.best.parameters)
    files = {run_folder.VALIDATION: splits.validation, run_folder.TEST: splits.test}
    predictions = {
        name: predictions_of(model, samples, recipe, accelerator)
        for name, samples in files.items()
        if samples is not None
    }
    if not accelerator.is_main_process:
        return
    write_parameters(folder / run_folder.MODEL, model)
    run_folder.write_json(folder / run_folder.FINAL, _final_epoch(state, recipe))
    for name, split_predictions in predictions.items():
        write_predictions(folder / name, split_predictions)
    write_metrics(folder / run_folder.METRICS, _evaluate(predictions))


def _final_epoch(state: TrainState, recipe: Recipe) -> dict[str, Any]:
    """The epoch of the model that is evaluated, and how it was chosen."""
    epochs = recipe.training.epochs
    if state.best is None:
        return {"final": "last", "epoch": epochs, "epochs": epochs}
    name = f"validation_{state.best.by}"
    return {
        "final": "best",
        "epoch": state.best.epoch,
        "epochs": epochs,
        "best_by": state.best.by,
        name: state.best.value,
        f"last_{name}": state.progress.history[-1][name],
    }


def _evaluate(predictions: Mapping[str, Predictions]) -> dict[str, MetricValues]:
    """Metrics of the test samples, or of the validation samples where there are no others."""
    test, validation = (predictions.get(name) for name in (run_folder.TEST, run_folder.VALIDATION))
    if test is None:
        if validation is None:
            return {}
        # A temperature fitted on the samples that it is evaluated on would look too good.
        return evaluate_predictions(validation.logits, validation.targets)
    held_out = None if validation is None else (validation.logits, validation.targets)
    return evaluate_predictions(test.logits, test.targets, held_out)


def predictions_of(
    model: nn.Module, samples: Samples, recipe: Recipe, accelerator: Accelerator
) -> Predictions:
    """The predictions of a model for a split."""
    logits = predict(
        model,
        samples.inputs,
        len(samples),
        recipe.training.evaluation_batch_size,
        accelerator,
        channels_last=recipe.training.channels_last,
    )
    return Predictions(samples.sample_ids, logits, samples.labels)
