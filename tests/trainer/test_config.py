"""The configuration of a recipe: validated and immutable."""

from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import (
    EqualWeights,
    ImageData,
    ModelConfig,
    Recipe,
    ScoreWeights,
    TrainingConfig,
)
from trainer.config.steps import Sgd


def test_a_minimal_recipe_trains_with_plain_cross_entropy() -> None:
    recipe = Recipe(
        name="least",
        data=ImageData(train="photos/"),
        model=ModelConfig(name="probe"),
        training=TrainingConfig(epochs=1),
    )

    assert recipe.loss.name == "cross_entropy"
    assert recipe.regulariser.alpha == 0
    assert recipe.regulariser.weights == "constant"


def test_a_configuration_cannot_be_changed() -> None:
    training = TrainingConfig(epochs=1)

    with pytest.raises(ValidationError, match="frozen"):
        training.epochs = 2  # type: ignore[misc]


def test_two_configurations_of_the_same_values_are_equal() -> None:
    data = ImageData(train="photos/")

    changed = data.model_copy(update={"limit": 10}).model_copy(update={"limit": None})

    assert changed == data


def test_validation_is_a_fraction_or_a_dataset() -> None:
    share = ImageData(train="photos/", validation=0.2)
    dataset = ImageData(train="photos/", validation="others/")

    assert (share.validation, dataset.validation) == (0.2, "others/")


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (ImageData, {"train": "photos/", "validation": 1.0}),
        (ImageData, {"train": "photos/", "label_noise": -0.1}),
        (ImageData, {"train": "photos/", "kind": "sound"}),
        (Sgd, {"learning_rate": 0}),
        (Sgd, {"learning_rate": float("inf")}),
        (Sgd, {"weight_decay": float("nan")}),
        (EqualWeights, {"alpha": -0.1}),
        (ScoreWeights, {"score_temperature": 0}),
        (ScoreWeights, {"winsorise": 0.5}),
        (TrainingConfig, {"epochs": 0}),
        (TrainingConfig, {"epochs": 1, "seeds": ()}),
        (TrainingConfig, {"epochs": 1, "seeds": (-1,)}),
        (TrainingConfig, {"epochs": 1, "ema_decay": 1.0}),
        (TrainingConfig, {"epochs": 1, "epoch": 1}),
    ],
)
def test_a_value_out_of_range_is_refused(config: type, values: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        config(**values)
