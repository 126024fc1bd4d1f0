"""The model of a finished run; files that are missing or damaged are named."""

from collections.abc import Callable
from pathlib import Path

import pytest

from difficulty_service.base.errors import TrainingError
from tests.small_runs import finish
from trainer.config import Recipe
from trainer.runs.evaluate import load_model

MakeRecipe = Callable[..., Recipe]


def test_the_model_of_an_unfinished_run_is_refused_with_the_remedy(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    folder = finish(probe_recipe(), tmp_path, stop=True)

    with pytest.raises(TrainingError, match=r"model\.safetensors is missing; .*resume=True"):
        load_model(folder, "cpu")


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"recipe\.json is missing"):
        load_model(tmp_path, "cpu")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("model.safetensors", b""),
        ("model.safetensors", None),
        ("recipe.json", b'{"version": 1}'),
        ("recipe.json", b'{"version": 1, "recipe": 1, "seed": 0}'),
        ("recipe.json", b'{"recipe"'),
        ("inputs.json", b'{"shape": [6]}'),
        ("inputs.json", b"{"),
    ],
)
def test_a_damaged_file_of_a_run_is_named(
    probe_recipe: MakeRecipe, tmp_path: Path, name: str, content: bytes | None
) -> None:
    folder = finish(probe_recipe(training={"epochs": 1}), tmp_path)
    path = folder / name
    path.write_bytes(path.read_bytes()[:-20] if content is None else content)

    with pytest.raises(TrainingError, match=rf"seed-0/{name} is damaged .*; train again"):
        load_model(folder, "cpu")


def test_parameters_of_another_network_are_refused(
    probe_recipe: MakeRecipe, tmp_path: Path
) -> None:
    one = finish(probe_recipe(training={"epochs": 1}), tmp_path / "one")
    deep = probe_recipe(training={"epochs": 1}, model={"hidden": [4]})
    other = finish(deep, tmp_path / "other")
    (one / "model.safetensors").write_bytes((other / "model.safetensors").read_bytes())

    with pytest.raises(TrainingError, match=r"model\.safetensors is damaged"):
        load_model(one, "cpu")
