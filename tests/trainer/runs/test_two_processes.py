"""Two processes train as one does, but for rounding."""

import copy
import shutil
from collections.abc import Callable, Mapping
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from tests.small_runs import run
from tests.two_processes import run_in_two
from trainer.config import Recipe
from trainer.recipes.file import recipe_as_dict, recipe_from_dict
from trainer.run_folder import HISTORY, read_history
from trainer.runs.train import RunRequest, run_seed
from trainer.training.dynamics import COLUMNS

MakeRecipe = Callable[..., Recipe]

TRAINING = """
from pathlib import Path

from accelerate import PartialState

PartialState(cpu=device == "cpu", backend="gloo")  # NCCL refuses two processes on one GPU
from trainer.recipes.file import recipe_from_dict
from trainer.runs.train import RunCallbacks, RunRequest, run_seed

epochs = 0


def on_epoch(_record):
    global epochs
    epochs += 1


callbacks = RunCallbacks(on_epoch=on_epoch, should_stop=lambda: epochs == stop)
request = RunRequest(recipe_from_dict(recipe, "the recipe"), 0, Path(folder), device, resume)
run_seed(request, callbacks)
"""


@pytest.fixture
def run_two(forkserver: ForkServerContext) -> Callable[..., None]:
    """Runs a recipe in two processes, up to an epoch if one is named."""

    def run_both(
        recipe: Recipe, folder: Path, device: str = "cpu", *, stop: int = 0, resume: bool = False
    ) -> None:
        values: dict[str, Any] = {"recipe": recipe_as_dict(recipe), "folder": str(folder)}
        run_in_two(forkserver, TRAINING, **values, device=device, stop=stop, resume=resume)

    return run_both


def parameters(folder: Path) -> dict[str, Tensor]:
    return load_file(folder / "seed-0" / "model.safetensors")


def dynamics(folder: Path) -> dict[str, Tensor]:
    table = pq.read_table(folder / "seed-0" / "dynamics.parquet")
    return {name: torch.tensor(table[name].to_pylist()).nan_to_num(-9) for name in COLUMNS}


def with_settings(recipe: Recipe, table: str, **settings: object) -> Recipe:
    values = copy.deepcopy(recipe_as_dict(recipe))
    values[table] |= settings
    return recipe_from_dict(values, "the recipe")


@pytest.fixture
def weighted_recipe(probe_recipe: MakeRecipe, locations: Mapping[str, str]) -> Recipe:
    """A loss with memory, weights, an order, clipped gradients, parts of batches and dynamics."""
    scores = locations["SCORES"]
    return probe_recipe(
        loss={"name": "adafocal"},
        regulariser={"alpha": 0.3, "weights": "scores", "scores": scores},
        sampling={"order": "easy_first", "scores": scores, "start": 0.4},
        optimiser={"gradient_clip": 0.5},
        training={"batch_size": 15, "gradient_accumulation": 2, "dynamics": True},
    )


@pytest.mark.slow
def test_two_processes_train_as_one_does(
    weighted_recipe: Recipe, run_two: Callable[..., None], tmp_path: Path
) -> None:
    run(weighted_recipe, tmp_path / "one")

    run_two(weighted_recipe, tmp_path / "two")

    two, one = parameters(tmp_path / "two"), parameters(tmp_path / "one")
    torch.testing.assert_close(two, one, rtol=1e-4, atol=1e-5)
    learned = [dynamics(tmp_path / name) for name in ("two", "one")]
    torch.testing.assert_close(*learned, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_processes_that_share_their_parameters_train_as_one_does_also_when_they_resume(
    weighted_recipe: Recipe, run_two: Callable[..., None], tmp_path: Path
) -> None:
    recipe = with_settings(weighted_recipe, "training", ema_decay=0.5, final="best")
    run(recipe, tmp_path / "one")
    sharded = with_settings(recipe, "training", fsdp=True)

    run_two(sharded, tmp_path / "two", stop=1)
    shutil.copytree(tmp_path / "two", tmp_path / "two, then one")
    run_two(sharded, tmp_path / "two", resume=True)
    run(recipe, tmp_path / "two, then one", resume=True)

    one = parameters(tmp_path / "one")
    for name in ("two", "two, then one"):
        torch.testing.assert_close(parameters(tmp_path / name), one, rtol=1e-4, atol=1e-5)
    histories = [read_history(tmp_path / name / "seed-0" / HISTORY) for name in ("one", "two")]
    for ours, of_one in zip(histories[1], histories[0], strict=True):
        assert ours["norm_last_gradient"] == pytest.approx(of_one["norm_last_gradient"], rel=1e-3)


@pytest.mark.gpu
@pytest.mark.slow
def test_batch_statistics_of_two_processes_together_are_those_of_one(
    image_recipe: MakeRecipe, run_two: Callable[..., None], tmp_path: Path
) -> None:
    apart = image_recipe(loss={"name": "cross_entropy"})
    recipe = with_settings(apart, "training", sync_batchnorm=True)
    run_seed(RunRequest(recipe, 0, tmp_path / "one", "cuda"))

    run_two(recipe, tmp_path / "two", "auto")
    run_two(apart, tmp_path / "apart", "auto")

    one, two, without = (parameters(tmp_path / name) for name in ("one", "two", "apart"))
    torch.testing.assert_close(two, one, rtol=1e-3, atol=1e-4)
    with pytest.raises(AssertionError):
        torch.testing.assert_close(without, one, rtol=1e-3, atol=1e-4)
