"""The outcome of a run: its final model, the predictions of that model and their metrics.

The record of what a run minimises: its loss, its entropy term and where the weights are from.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from accelerate import Accelerator
from torch import nn

from difficulty_service.base.files import replacing
from difficulty_service.base.tables import write_parquet
from trainer import run_folder
from trainer.config import LossConfig, Recipe, ScoreWeights
from trainer.data import Splits
from trainer.evaluation.prediction_file import Predictions, write_predictions
from trainer.evaluation.record import MetricValues, evaluate_predictions, write_metrics
from trainer.losses import loss_constants
from trainer.runs.model_file import write_parameters
from trainer.samples import Samples
from trainer.training.accelerator import predict_split
from trainer.training.dynamics import Dynamics
from trainer.training.state import TrainState
from trainer.training.supervision import LabelBeliefs
from trainer.weights.formula import WeightsDistribution
from trainer.weights.score_files import ScoreFiles, describe_scores


def finish(
    folder: Path, state: TrainState, splits: Splits, recipe: Recipe, accelerator: Accelerator
) -> None:
    """Writes the model and its predictions, and last their metrics, which mark the run finished.

    With a best epoch, the model of the state gets its parameters.
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
    if state.dynamics is not None:
        _write_dynamics(folder / run_folder.DYNAMICS, splits.train, state.dynamics)
    for name, split_predictions in predictions.items():
        write_predictions(folder / name, split_predictions)
    write_metrics(folder / run_folder.METRICS, _evaluate(predictions))


def _write_dynamics(path: Path, samples: Samples, dynamics: Dynamics) -> None:
    """Writes how each training sample was learned, a row each."""
    columns = {name: values.numpy() for name, values in dynamics.columns().items()}
    labels = samples.labels.int().numpy()
    with replacing(path) as temporary:
        rows = {"sample_id": list(samples.sample_ids), "label": labels, **columns}
        write_parquet(temporary, pa.table(rows))


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
    logits = predict_split(model, samples, recipe.training, accelerator)
    return Predictions(samples.sample_ids, logits, samples.labels)


WEIGHT_KEYS = ("normalise", "winsorise", "score_temperature", "c", "missing")
"""Keys of [regulariser] that decide how scores become weights."""


def describe_objective(
    recipe: Recipe,
    distribution: WeightsDistribution | None,
    beliefs: LabelBeliefs | None,
    score_files: ScoreFiles,
) -> dict[str, Any]:
    """Describes the objective of a run completely, with the defaults of everything left out.

    Returns:
        JSON values:

        - `sentence`: the objective in one sentence.
        - `loss`: its `name` and all its `constants`.
        - `reduction`: "mean" or "sum" over the samples of a batch.
        - `alpha`: strength of the entropy term.
        - `weights`: "none" without an entropy term, "constant" or "scores".
        - `formula`: for weights by scores, the keys of [regulariser] that decide them.
        - `scores`: for weights by scores, the file, its column, scorer and provenance.
        - `distribution`: for weights by scores, the statistics of `weights.json`.
        - `targets`: where these are distributions, the keys that make them so.
        - `order`: where samples are not in random order, the keys of [sampling] and the scores.
        - `labels`: where the loss does not take the labels as given, its keys of [loss] for that,
          the file, and how many labels are doubted.
    """
    config = recipe.regulariser
    constants = loss_constants(recipe.loss.name) | dict(recipe.loss.constants)
    record: dict[str, Any] = {
        "sentence": "",
        "loss": {"name": recipe.loss.name, "constants": constants},
        "reduction": recipe.training.reduction,
        "alpha": config.alpha,
        "weights": "none" if config.alpha == 0 else config.weights,
    }
    if distribution is not None and config.weights == "scores" and config.scores is not None:
        record["formula"] = {key: getattr(config, key) for key in WEIGHT_KEYS}
        record["scores"] = describe_scores(score_files(config.scores), config.column)
        record["distribution"] = distribution.as_dict()
    if beliefs is not None and recipe.loss.scores is not None:
        record["labels"] = {
            "weights": recipe.loss.weights,
            "targets": recipe.loss.targets,
            "missing": recipe.loss.missing,
            "scores": describe_scores(score_files(recipe.loss.scores), "p_wrong"),
            "beliefs": beliefs.describe(),
        }
    if recipe.soft_keys:
        record["targets"] = recipe.soft_keys
    sampling = recipe.sampling
    if sampling.order != "random" and sampling.scores is not None:
        scores = describe_scores(score_files(sampling.scores), sampling.column)
        record["order"] = sampling.model_dump() | {"scores": scores}
    unweighted = _unweighted(recipe, constants, distribution)
    record["sentence"] = f"{unweighted}{_trust(recipe.loss)}{_targets(recipe)}."
    return record


def _unweighted(
    recipe: Recipe, constants: dict[str, Any], distribution: WeightsDistribution | None
) -> str:
    config = recipe.regulariser
    listed = ", ".join(f"{name} = {shown(value)}" for name, value in constants.items())
    loss = f"{recipe.loss.name} ({listed})" if listed else recipe.loss.name
    if config.alpha == 0:
        return f"{loss}, without an entropy term"
    if config.weights == "constant" or distribution is None:
        return f"{loss} minus {config.alpha:g} times the entropy of each prediction"
    return (
        f"{loss} minus {config.alpha:g} times the weight of each sample times the entropy of its "
        f"prediction; {_weights(config, distribution)}"
    )


def _targets(recipe: Recipe) -> str:
    sentence = ""
    if recipe.distribution_column is not None:
        sentence = f"; targets are the distributions of column {recipe.distribution_column}"
    if recipe.training.mixing != "none":
        mixing, alpha = recipe.training.mixing, recipe.training.mixing_alpha
        sentence += f"; images, targets and weights are mixed ({mixing}, alpha = {alpha:g})"
    return sentence


def _trust(config: LossConfig) -> str:
    if config.targets == "posterior":
        return (
            "; the loss is its mean over the given label and the suggested one, by their "
            f"probabilities in {config.scores}"
        )
    if config.weights == "label_probability":
        return (
            "; all of it times the probability that the label is right, from "
            f"{config.scores}, divided by the mean"
        )
    return ""


def _weights(config: ScoreWeights, distribution: WeightsDistribution) -> str:
    return (
        f"weights from column {config.column} of {config.scores} (normalise = {config.normalise}, "
        f"score_temperature = {config.score_temperature:g}), mean {distribution.mean:.3g}, "
        f"standard deviation {distribution.std:.3g}, from {distribution.min:.3g} to "
        f"{distribution.max:.3g}"
    )


def shown(value: object) -> str:
    """A constant of a loss as text."""
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
