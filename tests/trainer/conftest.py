"""Small runs: folders of features and of images, recipes for them, and recording callbacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from accelerate import Accelerator
from PIL import Image

from trainer.config import Recipe
from trainer.recipes.file import recipe_from_dict
from trainer.runs.train import RunCallbacks, RunRequest, run_seed
from trainer.training.accelerator import make_accelerator
from trainer.training.checkpoint import Progress
from trainer.weights.formula import WeightsDistribution

MakeRecipe = Callable[..., Recipe]


@dataclass
class RunRecorder:
    """Callbacks that record their calls, and stop the run after some steps."""

    stop_after: int | None = None
    started_at: tuple[int, int] | None = None
    steps: list[int] = field(default_factory=list)
    epochs: list[dict[str, Any]] = field(default_factory=list)

    def callbacks(self) -> RunCallbacks:
        return RunCallbacks(self.start, self.steps.append, self.epochs.append, self.stop)

    def start(
        self, _samples: int, progress: Progress, _weights: WeightsDistribution | None
    ) -> None:
        self.started_at = (progress.epoch, progress.step)

    def stop(self) -> bool:
        return self.stop_after is not None and len(self.steps) >= self.stop_after


@pytest.fixture
def make_recorder() -> Callable[..., RunRecorder]:
    """Makes callbacks that record a run."""
    return RunRecorder


@pytest.fixture
def accelerator() -> Accelerator:
    """This process alone, on the CPU."""
    return make_accelerator("cpu", "fp32")


@pytest.fixture(scope="session")
def features(tmp_path_factory: pytest.TempPathFactory, write_features: Callable[..., str]) -> str:
    """Ninety samples of six features, thirty of each class."""
    return write_features(tmp_path_factory.mktemp("data") / "features")


@pytest.fixture(scope="session")
def test_features(
    tmp_path_factory: pytest.TempPathFactory, write_features: Callable[..., str]
) -> str:
    """Thirty-one test samples, a number that no batch size divides."""
    return write_features(tmp_path_factory.mktemp("data") / "test", num_samples=31, seed=1)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Sixty images of 8x8 pixels, twenty of each class, which differ in brightness."""
    folder = tmp_path_factory.mktemp("data") / "images"
    generator = np.random.default_rng(0)
    for number in range(60):
        path = folder / ("bird", "cat", "dog")[number % 3] / f"{number:02d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        pixels = generator.integers(0, 120, (8, 8, 3)) + 60 * (number % 3)
        Image.fromarray(pixels.astype(np.uint8)).save(path)
    return str(folder)


@pytest.fixture(scope="session")
def probe_recipe(features: str) -> MakeRecipe:
    """Makes a recipe for a linear probe; each argument changes keys of one table."""

    def make(**tables: Mapping[str, Any]) -> Recipe:
        return changed(
            {
                "name": "tiny",
                "data": {"train": features, "kind": "features", "validation": 0.2},
                "model": {"name": "probe"},
                "optimiser": {"learning_rate": 0.05},
                "training": {"epochs": 3, "batch_size": 16, "precision": "fp32"},
            },
            tables,
        )

    return make


@pytest.fixture(scope="session")
def image_recipe(images: str) -> MakeRecipe:
    """Makes a recipe for a tiny residual network with every kind of state."""

    def make(**tables: Mapping[str, Any]) -> Recipe:
        return changed(
            {
                "name": "tiny-images",
                "data": {
                    "train": images,
                    "validation": 0.2,
                    "augmentation": "flip_crop",
                    "crop_padding": 1,
                },
                "model": {"name": "small_resnet", "widths": [4, 8], "blocks": [1, 1]},
                "loss": {"name": "adafocal"},
                "optimiser": {"learning_rate": 0.05, "gradient_clip": 2.0},
                "schedule": {"name": "cosine", "warmup": 0.2},
                "training": {"epochs": 3, "batch_size": 16, "precision": "fp32", "ema_decay": 0.8},
            },
            tables,
        )

    return make


@pytest.fixture(scope="session")
def forgetful_probe(probe_recipe: MakeRecipe, test_features: str) -> Recipe:
    """Dropout, a loss that remembers each sample, AdamW and a moving average."""
    return probe_recipe(
        data={"test": test_features},
        model={"hidden": [8], "dropout": 0.5},
        loss={"name": "correctness_ranking"},
        optimiser={"name": "adamw", "learning_rate": 0.01},
        training={"batch_size": 24, "ema_decay": 0.8},
    )


@pytest.fixture
def run() -> Callable[..., bool]:
    """Runs a seed of a recipe on the CPU; returns whether it is finished."""

    def call(
        recipe: Recipe, folder: Path, *recorders: RunRecorder, resume: bool = False, seed: int = 0
    ) -> bool:
        (recorder,) = recorders or (RunRecorder(),)
        return run_seed(RunRequest(recipe, seed, folder, "cpu", resume), recorder.callbacks())

    return call


def changed(values: dict[str, Any], tables: Mapping[str, Mapping[str, Any]]) -> Recipe:
    for table, changes in tables.items():
        values[table] = values.get(table, {}) | changes
    return recipe_from_dict(values, "the recipe of the test")
