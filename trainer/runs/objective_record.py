"""The record of what a run minimises: its loss, its entropy term and where the weights are from."""

from pathlib import Path
from typing import Any

from trainer.config import LossConfig, Recipe, ScoreWeights
from trainer.losses import loss_constants
from trainer.weights.formula import WeightsDistribution
from trainer.weights.score_source import describe_scores
from trainer.weights.supervision import LabelBeliefs

WEIGHT_KEYS = ("normalise", "winsorise", "score_temperature", "c", "missing")
"""Keys of [regulariser] that decide how scores become weights."""


def describe_objective(
    recipe: Recipe,
    distribution: WeightsDistribution | None = None,
    beliefs: LabelBeliefs | None = None,
) -> dict[str, Any]:
    """Describes the objective of a run completely, with the defaults of everything left out.

    Args:
        recipe: Recipe of the run.
        distribution: Distribution of the weights; None where all samples are weighed alike.
        beliefs: What the loss knows about the labels; None where it takes them as given.

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
        - `labels`: where the loss does not take the labels as given, its keys of [loss] for that,
          the file, and how many labels are doubted.

    Raises:
        ScoreFileError: The score file cannot be read.
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
        record["scores"] = describe_scores(Path(config.scores), config.column)
        record["distribution"] = distribution.as_dict()
    if beliefs is not None and recipe.loss.scores is not None:
        record["labels"] = {
            "weights": recipe.loss.weights,
            "targets": recipe.loss.targets,
            "missing": recipe.loss.missing,
            "scores": describe_scores(Path(recipe.loss.scores), "label_probability"),
            "beliefs": beliefs.describe(),
        }
    record["sentence"] = _sentence(recipe, constants, distribution)
    return record


def _sentence(
    recipe: Recipe, constants: dict[str, Any], distribution: WeightsDistribution | None
) -> str:
    return f"{_unweighted(recipe, constants, distribution)}{_trust(recipe.loss)}."


def _unweighted(
    recipe: Recipe, constants: dict[str, Any], distribution: WeightsDistribution | None
) -> str:
    config = recipe.regulariser
    shown = ", ".join(f"{name} = {_shown(value)}" for name, value in constants.items())
    loss = f"{recipe.loss.name} ({shown})" if shown else recipe.loss.name
    if config.alpha == 0:
        return f"{loss}, without an entropy term"
    if config.weights == "constant" or distribution is None:
        return f"{loss} minus {config.alpha:g} times the entropy of each prediction"
    return (
        f"{loss} minus {config.alpha:g} times the weight of each sample times the entropy of its "
        f"prediction; {_weights(config, distribution)}"
    )


def _trust(config: LossConfig) -> str:
    if config.targets == "posterior":
        return (
            "; the loss is its mean over the given label and the suspected one, by their "
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


def _shown(value: object) -> str:
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_shown, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
