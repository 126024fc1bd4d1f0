"""The configuration of a recipe: validated and immutable."""

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest
from pydantic import ValidationError

from trainer.config import (
    DataConfig,
    ModelConfig,
    OptimiserConfig,
    Recipe,
    RegulariserConfig,
    TrainingConfig,
)


def test_a_minimal_recipe_trains_with_plain_cross_entropy() -> None:
    recipe = Recipe("least", DataConfig("photos/"), ModelConfig("probe"), TrainingConfig(epochs=1))

    assert recipe.loss.name == "cross_entropy"
    assert recipe.regulariser.alpha == 0
    assert recipe.regulariser.weights == "constant"


def test_a_configuration_cannot_be_changed() -> None:
    training = TrainingConfig(epochs=1)

    with pytest.raises(FrozenInstanceError):
        training.epochs = 2  # type: ignore[misc]


def test_two_configurations_of_the_same_values_are_equal() -> None:
    data = DataConfig("photos/")

    changed = replace(replace(data, limit=10), limit=None)

    assert changed == data


def test_validation_is_a_fraction_or_a_dataset() -> None:
    share = DataConfig("photos/", validation=0.2)
    dataset = DataConfig("photos/", validation="others/")

    assert (share.validation, dataset.validation) == (0.2, "others/")


@pytest.mark.parametrize(
    ("config", "values"),
    [
        (DataConfig, {"train": "photos/", "validation": 1.0}),
        (DataConfig, {"train": "photos/", "label_noise": -0.1}),
        (DataConfig, {"train": "photos/", "kind": "sound"}),
        (OptimiserConfig, {"learning_rate": 0}),
        (OptimiserConfig, {"learning_rate": float("inf")}),
        (OptimiserConfig, {"weight_decay": float("nan")}),
        (RegulariserConfig, {"alpha": -0.1}),
        (RegulariserConfig, {"score_temperature": 0}),
        (RegulariserConfig, {"winsorise": 0.5}),
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
