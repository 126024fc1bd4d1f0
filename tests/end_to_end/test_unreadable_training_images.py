"""`difficulty train` and `difficulty evaluate` on images of which some cannot be read."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

Command = Callable[..., subprocess.CompletedProcess[str]]

RECIPE = """
[data]
train = "{train}"
validation = 0.2
image_size = 8

[model]
name = "small_resnet"
widths = [4, 8]
blocks = [1, 1]

[training]
epochs = 1
batch_size = 8
precision = "fp32"
"""


@pytest.fixture
def recipe(few_photos: Path, tmp_path: Path) -> Path:
    """A recipe for twenty photos, of which two cannot be read, and an empty class."""
    (few_photos / "bird" / "003.png").write_text("no image")
    (few_photos / "cat" / "007.png").write_bytes(b"")
    (few_photos / "empty class").mkdir()
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE.format(train=few_photos))
    return path


def rows(path: Path) -> dict[str, str]:
    """The reason for each entry of a list of errors."""
    table = pq.read_table(path).to_pydict()
    return dict(zip(table["sample_id"], table["reason"], strict=True))


def test_a_run_goes_on_without_them_and_lists_them(
    difficulty: Command, recipe: Path, tmp_path: Path
) -> None:
    done = difficulty("train", recipe, "--out", tmp_path / "run", "--device", "cpu")

    assert done.returncode == 0, done.stderr
    assert "14 training samples" in done.stdout
    assert "2 of 20 images cannot be read and are skipped, first 'bird/003.png'" in done.stderr
    assert "1 entry is skipped (an empty class folder): 'empty class'" in done.stderr
    errors = rows(tmp_path / "run" / "seed-0" / "errors.parquet")
    assert sorted(errors) == ["bird/003.png", "cat/007.png", "empty class"]
    assert errors["cat/007.png"] == "the file is empty"


@pytest.mark.slow
def test_an_evaluation_goes_on_without_them_and_lists_them(
    difficulty: Command, recipe: Path, few_photos: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    difficulty("train", recipe, "--out", run, "--device", "cpu")

    done = difficulty("evaluate", run, "--data", few_photos, "--device", "cpu")
    stopped = difficulty(
        "evaluate", run, "--data", few_photos, "--device", "cpu", "--on-error", "stop"
    )

    assert done.returncode == 0, done.stderr
    assert "2 of 20 images cannot be read and are skipped" in done.stderr
    assert str(few_photos) in json.loads((run / "seed-0" / "evaluation.json").read_text())
    errors = rows(run / "seed-0" / "evaluation_errors.parquet")
    assert sorted(errors) == ["bird/003.png", "cat/007.png", "empty class"]
    assert stopped.returncode == 1
    assert "error: 2 images of " in stopped.stderr


def test_a_run_that_stops_at_them_names_them(
    difficulty: Command, recipe: Path, tmp_path: Path
) -> None:
    done = difficulty(
        "train", recipe, "--out", tmp_path / "run", "--device", "cpu", "--on-error", "stop"
    )

    assert done.returncode == 1
    assert f'error: data.train = "{tmp_path / "photos"}": 2 images of ' in done.stderr
    assert "'bird/003.png': not an image" in done.stderr


def test_the_option_without_a_dataset_to_read_is_refused(
    difficulty: Command, tmp_path: Path
) -> None:
    done = difficulty("evaluate", tmp_path, "--on-error", "stop")

    assert done.returncode == 2
    assert "--on-error belongs to --data, --ood and --corruptions" in done.stderr
