"""The train state: built from a recipe, saved, and restored."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from difficulty_service.base.errors import ConfigError, TrainingError
from trainer.config import Recipe
from trainer.config.steps import AdamW, Sgd
from trainer.data import Splits, open_splits
from trainer.losses.correctness_ranking import CorrectnessRanking
from trainer.training.state import (
    make_optimiser,
    make_train_state,
    resume_train_state,
    save_train_state,
)

MakeRecipe = Callable[..., Recipe]


@pytest.fixture
def recipe(probe_recipe: MakeRecipe) -> Recipe:
    """A loss with memory, an optimiser with momentum, and a moving average."""
    return probe_recipe(loss={"name": "correctness_ranking"}, training={"ema_decay": 0.9})


@pytest.fixture
def splits(recipe: Recipe) -> Splits:
    """Training and validation samples of the recipe."""
    return open_splits(recipe.data, 0, torch.device("cpu"))


def test_initial_parameters_follow_the_seed(
    recipe: Recipe, splits: Splits, accelerator: Accelerator
) -> None:
    first, again, other = (
        make_train_state(recipe, seed, splits, accelerator).model.state_dict()["network.0.weight"]
        for seed in (0, 0, 1)
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_loss_receives_all_training_samples(
    recipe: Recipe, splits: Splits, accelerator: Accelerator
) -> None:
    state = make_train_state(recipe, 0, splits, accelerator)

    assert isinstance(state.objective.loss, CorrectnessRanking)
    assert state.objective.loss.state_dict()["sample_ids"] == list(splits.train.sample_ids)


def test_a_loss_that_learns_from_validation_samples_needs_some(
    probe_recipe: MakeRecipe, splits: Splits, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(loss={"name": "adafocal"})

    with pytest.raises(ConfigError, match=r"'adafocal' learns from validation samples"):
        make_train_state(recipe, 0, replace(splits, validation=None), accelerator)


def test_options_are_passed_to_the_optimiser() -> None:
    model = nn.Linear(2, 2)
    sgd = Sgd(learning_rate=0.3, momentum=0.8, nesterov=True, weight_decay=0.01)
    adamw = AdamW(learning_rate=0.003, weight_decay=0.02)

    first, second = make_optimiser(model, sgd), make_optimiser(model, adamw)

    expected = {"lr": 0.3, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}
    assert isinstance(first, torch.optim.SGD)
    assert first.param_groups[0].items() >= expected.items()
    assert isinstance(second, torch.optim.AdamW)
    assert second.param_groups[0].items() >= {"lr": 0.003, "weight_decay": 0.02}.items()


def test_frozen_parameters_are_not_optimised() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(requires_grad=False)

    optimiser = make_optimiser(model, Sgd())

    assert optimiser.param_groups[0]["params"] == [model.weight]


def test_a_state_is_restored_as_it_was_saved(
    recipe: Recipe, splits: Splits, accelerator: Accelerator, tmp_path: Path
) -> None:
    saved = make_train_state(recipe, 0, splits, accelerator)
    saved.model(torch.rand(4, 6)).sum().backward()
    saved.optimiser.step()
    assert saved.average is not None
    saved.average.update_parameters(saved.model)
    assert isinstance(saved.objective.loss, CorrectnessRanking)
    saved.objective.loss.before_batch(splits.train.sample_ids[:2])
    saved.objective.loss.after_batch(torch.tensor([True, False]))
    saved.progress.step = 1

    save_train_state(tmp_path, {"seed": 0}, saved, accelerator)
    new = make_train_state(recipe, 1, splits, accelerator)
    restored = resume_train_state(tmp_path / "checkpoint.pt", {"seed": 0}, new, accelerator)

    assert restored.average is not None
    assert restored.progress == saved.progress
    assert_same(restored.model, saved.model)
    assert_same(restored.average, saved.average)
    momenta, expected = (
        [values["momentum_buffer"] for values in state.optimiser.state_dict()["state"].values()]
        for state in (restored, saved)
    )
    assert len(expected) == 2
    assert all(map(torch.equal, momenta, expected))
    assert isinstance(restored.objective.loss, CorrectnessRanking)
    assert restored.objective.loss.state_dict()["counts"].sum() == 1


def test_another_run_cannot_restore_it(
    recipe: Recipe, splits: Splits, accelerator: Accelerator, tmp_path: Path
) -> None:
    state = make_train_state(recipe, 0, splits, accelerator)
    save_train_state(tmp_path, {"seed": 0}, state, accelerator)

    with pytest.raises(TrainingError, match="seed: 0 then, 1 now"):
        resume_train_state(tmp_path / "checkpoint.pt", {"seed": 1}, state, accelerator)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    values, others = one.state_dict(), other.state_dict()
    assert values.keys() == others.keys()
    assert all(torch.equal(values[name], others[name]) for name in values)
