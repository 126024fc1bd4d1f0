"""A finished run of a probe, and a function that makes such runs."""

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer.config import Recipe
from trainer.runs.train import RunCallbacks, RunRequest, run_seed


@pytest.fixture(scope="session")
def finish() -> Callable[..., Path]:
    """Runs seed 0 of a recipe; returns the folder of its files."""

    def run(recipe: Recipe, folder: Path, *, stop: bool = False) -> Path:
        callbacks = RunCallbacks(should_stop=lambda: stop)
        finished = run_seed(RunRequest(recipe, 0, folder, "cpu"), callbacks)
        assert finished is not stop
        return folder / "seed-0"

    return run


@pytest.fixture(scope="module")
def probe(
    probe_recipe: Callable[..., Recipe],
    finish: Callable[..., Path],
    test_features: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    """The folder of a seed of a probe with thirty-one test samples."""
    return finish(probe_recipe(data={"test": test_features}), tmp_path_factory.mktemp("probe"))
