"""What learns: built from a recipe, saved, and taken up again."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from accelerate import Accelerator
from torch import nn

from difficulty_service.errors import ConfigError, TrainingError
from trainer.config import OptimiserConfig, Recipe
from trainer.data import Splits, open_splits
from trainer.losses.correctness_ranking import CorrectnessRanking
from trainer.training.state import make_learner, make_optimiser, resume_learner, save_learner

MakeRecipe = Callable[..., Recipe]


@pytest.fixture
def recipe(probe_recipe: MakeRecipe) -> Recipe:
    """A loss with memory, an optimiser with momentum, and a moving average."""
    return probe_recipe(loss={"name": "correctness_ranking"}, training={"ema_decay": 0.9})


@pytest.fixture
def splits(recipe: Recipe) -> Splits:
    """What it learns from."""
    return open_splits(recipe.data, 0, torch.device("cpu"))


def test_first_parameters_follow_the_seed(
    recipe: Recipe, splits: Splits, accelerator: Accelerator
) -> None:
    first, again, other = (
        make_learner(recipe, seed, splits, accelerator).model.state_dict()["network.0.weight"]
        for seed in (0, 0, 1)
    )

    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_the_loss_knows_all_training_samples(
    recipe: Recipe, splits: Splits, accelerator: Accelerator
) -> None:
    learner = make_learner(recipe, 0, splits, accelerator)

    assert isinstance(learner.objective.loss, CorrectnessRanking)
    assert learner.objective.loss.state_dict()["sample_ids"] == list(splits.train.sample_ids)


def test_a_loss_that_learns_from_validation_samples_needs_some(
    probe_recipe: MakeRecipe, splits: Splits, accelerator: Accelerator
) -> None:
    recipe = probe_recipe(loss={"name": "adafocal"})

    with pytest.raises(ConfigError, match=r"'adafocal' learns from validation samples"):
        make_learner(recipe, 0, replace(splits, validation=None), accelerator)


def test_options_of_the_optimiser_reach_it() -> None:
    model = nn.Linear(2, 2)
    sgd = OptimiserConfig("sgd", 0.3, momentum=0.8, nesterov=True, weight_decay=0.01)
    adamw = OptimiserConfig("adamw", 0.003, weight_decay=0.02)

    first, second = make_optimiser(model, sgd), make_optimiser(model, adamw)

    wanted = {"lr": 0.3, "momentum": 0.8, "nesterov": True, "weight_decay": 0.01}
    assert isinstance(first, torch.optim.SGD)
    assert first.param_groups[0].items() >= wanted.items()
    assert isinstance(second, torch.optim.AdamW)
    assert second.param_groups[0].items() >= {"lr": 0.003, "weight_decay": 0.02}.items()


def test_frozen_parameters_do_not_learn() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(requires_grad=False)

    optimiser = make_optimiser(model, OptimiserConfig())

    assert optimiser.param_groups[0]["params"] == [model.weight]


def test_a_learner_is_taken_up_as_it_was_left(
    recipe: Recipe, splits: Splits, accelerator: Accelerator, tmp_path: Path
) -> None:
    left = make_learner(recipe, 0, splits, accelerator)
    left.model(torch.rand(4, 6)).sum().backward()
    left.optimiser.step()
    assert left.average is not None
    left.average.update_parameters(left.model)
    assert isinstance(left.objective.loss, CorrectnessRanking)
    left.objective.loss.before_batch(splits.train.sample_ids[:2])
    left.objective.loss.after_batch(torch.tensor([True, False]))
    left.progress.step = 1

    save_learner(tmp_path, {"seed": 0}, left, accelerator)
    new = make_learner(recipe, 1, splits, accelerator)
    taken_up = resume_learner(tmp_path / "checkpoint.pt", {"seed": 0}, new, accelerator)

    assert taken_up.average is not None
    assert taken_up.progress == left.progress
    assert_same(taken_up.model, left.model)
    assert_same(taken_up.average, left.average)
    moved, wanted = (
        [state["momentum_buffer"] for state in learner.optimiser.state_dict()["state"].values()]
        for learner in (taken_up, left)
    )
    assert len(wanted) == 2
    assert all(map(torch.equal, moved, wanted))
    assert isinstance(taken_up.objective.loss, CorrectnessRanking)
    assert taken_up.objective.loss.state_dict()["counts"].sum() == 1


def test_another_run_cannot_take_it_up(
    recipe: Recipe, splits: Splits, accelerator: Accelerator, tmp_path: Path
) -> None:
    learner = make_learner(recipe, 0, splits, accelerator)
    save_learner(tmp_path, {"seed": 0}, learner, accelerator)

    with pytest.raises(TrainingError, match="seed was 0, now 1"):
        resume_learner(tmp_path / "checkpoint.pt", {"seed": 1}, learner, accelerator)


def assert_same(one: nn.Module, other: nn.Module) -> None:
    values, others = one.state_dict(), other.state_dict()
    assert values.keys() == others.keys()
    assert all(torch.equal(values[name], others[name]) for name in values)
