"""Datasets in the files of their authors, scored, trained on and evaluated by the commands."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from difficulty_service.scores.file import read_scores

Command = Callable[..., subprocess.CompletedProcess[str]]

RECIPE = """
[data]
train = "{location}"
split = "train"
test = "{location}"
test_split = "test"
validation = 0.2
limit = 200
augmentation = "flip_crop"

[model]
name = "small_resnet"

[regulariser]
alpha = 0.3
weights = "scores"

[training]
epochs = 1
batch_size = 100
precision = "fp32"
"""


@pytest.fixture
def cifar_10(tmp_path: Path) -> Path:
    """The binary version of CIFAR-10 with 150 images in each file, brighter in higher classes."""
    folder = tmp_path / "cifar-10-batches-bin"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        labels = np.arange(150) % 10
        pixels = 20 * labels[:, None] + generator.integers(0, 60, (150, 3072))
        records = np.hstack([labels[:, None], pixels]).astype(np.uint8)
        (folder / f"{name}.bin").write_bytes(records.tobytes())
    return folder


@pytest.mark.slow
def test_a_recipe_trains_with_the_scores_of_published_files_and_is_evaluated_on_corrupted_ones(
    difficulty: Command, cifar_10: Path, tmp_path: Path, network: tuple[str, ...]
) -> None:
    recipe, scores, run = (tmp_path / name for name in ("r.toml", "s.parquet", "run"))
    recipe.write_text(RECIPE.format(location=cifar_10))
    images = np.random.default_rng(1).integers(0, 256, (50, 32, 32, 3), np.uint8)
    np.save(tmp_path / "fog.npy", images)
    np.save(tmp_path / "labels.npy", np.tile(np.arange(10), 5))

    steps = [
        difficulty("score", cifar_10, "--split", "train", "--out", scores, *network),
        difficulty("train", recipe, "--out", run, "--device", "cpu", "--scores", scores),
        difficulty("evaluate", run, "--data", tmp_path / "fog.npy", "--device", "cpu"),
    ]

    for step in steps:
        assert step.returncode == 0, step.stderr
    assert read_scores(scores).table["sample_id"][749].as_py() == "train#749"
    record = json.loads(next(run.rglob("evaluation.json")).read_text())
    assert str(tmp_path / "fog.npy") in record


def test_a_split_that_is_not_chosen_is_one_line_that_names_the_option(
    difficulty: Command, cifar_10: Path, tmp_path: Path
) -> None:
    done = difficulty("score", cifar_10, "--out", tmp_path / "scores.parquet")

    assert done.returncode == 1
    assert (
        "holds the splits ['train', 'test']; choose one, for example --split train" in done.stderr
    )
