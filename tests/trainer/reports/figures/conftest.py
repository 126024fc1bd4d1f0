"""Runs to draw: one with everything, one that has only begun; and helpers to read what is drawn."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.config import Recipe
from trainer.runs.train import RunCallbacks, RunRequest, run_seed

MakeRecipe = Callable[..., Recipe]


@pytest.fixture(scope="session")
def run(
    probe_recipe: MakeRecipe, test_features: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Two seeds of a probe with AdaFocal, with validation samples and test data."""
    folder = tmp_path_factory.mktemp("runs") / "adaptive"
    recipe = probe_recipe(data={"test": test_features}, loss={"name": "adafocal"})
    for seed in (0, 1):
        run_seed(RunRequest(recipe.model_copy(update={"name": "a $ b"}), seed, folder, "cpu"))
    return folder


@pytest.fixture(scope="session")
def softmax_run(
    probe_recipe: MakeRecipe, test_features: str, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """One seed of a probe with cross-entropy, with test data."""
    folder = tmp_path_factory.mktemp("runs") / "softmax"
    recipe = probe_recipe(data={"test": test_features}, training={"epochs": 1})
    run_seed(RunRequest(recipe, 0, folder, "cpu"))
    return folder


@pytest.fixture(scope="session")
def plain(probe_recipe: MakeRecipe, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run without validation samples whose only seed was stopped after its first step."""
    folder = tmp_path_factory.mktemp("runs") / "plain"
    callbacks = RunCallbacks(should_stop=lambda: True)
    run_seed(RunRequest(probe_recipe(data={"validation": 0.0}), 0, folder, "cpu"), callbacks)
    return folder
