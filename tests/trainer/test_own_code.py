"""Models and losses from outside the package are imported by the name that a recipe gives them."""

import sys
from pathlib import Path

import pytest

from difficulty_service.base.errors import ConfigError
from trainer.config import Recipe
from trainer.models import build_model
from trainer.own_code import describe_own, find_own, is_own, known_objects, name_of
from trainer.recipes.file import recipe_as_dict, recipe_from_dict
from trainer.samples import InputSpec

MODULE = """
import torch
from torch import nn

class MyNet(nn.Module):
    def __init__(self, num_classes, width=4):
        super().__init__()
        self.layer = nn.Linear(6, num_classes)
    def forward(self, features):
        return self.layer(features)

def any_net(num_classes, **options):
    return MyNet(num_classes)

def needs_width(num_classes, width):
    return MyNet(num_classes, width)

def my_loss(logits, targets, power=2.0):
    return (1 - logits.softmax(dim=1).gather(1, targets[:, None]).squeeze(1)) ** power

number = 3
"""


@pytest.fixture
def own_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current directory, which is not installed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "my_package_of_parts.py").write_text(MODULE)
    (tmp_path / "broken_parts.py").write_text("import no_such_module_anywhere")
    (tmp_path / "failing_parts.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.delitem(sys.modules, "my_package_of_parts", raising=False)
    return "my_package_of_parts"


def recipe_of(**tables: object) -> Recipe:
    values = {
        "name": "own",
        "data": {"train": "features", "kind": "features"},
        "model": {"name": "probe"},
        "training": {"epochs": 1},
    }
    return recipe_from_dict(values | tables, "own.toml")


def test_a_recipe_names_a_class_in_the_current_directory(own_module: str) -> None:
    recipe = recipe_of(model={"name": f"{own_module}:MyNet", "width": 8})

    model = build_model(recipe.model, InputSpec((6,)), 3)

    assert type(model).__name__ == "MyNet"
    assert recipe_from_dict(recipe_as_dict(recipe), "again") == recipe


def test_a_recipe_names_a_loss_with_its_constants(own_module: str) -> None:
    recipe = recipe_of(loss={"name": f"{own_module}:my_loss", "power": 3.0})

    assert recipe.loss.constants == {"power": 3.0}


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"model": {"name": "{}:MyNet", "wide": 3}}, "wide: no such key; did you mean width"),
        ({"model": {"name": "{}:needs_width"}}, "width: is missing"),
        ({"model": {"name": "{}:NoNet"}}, "my_package_of_parts has no 'NoNet'"),
        ({"model": {"name": "{}:number"}}, "cannot be called"),
        ({"model": {"name": "my_pakage:MyNet"}}, "there is no module 'my_pakage'"),
        ({"model": {"name": "broken_parts:Net"}}, "'no_such_module_anywhere', which broken_parts"),
        ({"model": {"name": "failing_parts:Net"}}, "RuntimeError: no licence"),
        ({"loss": {"name": "{}:my_loss", "powr": 3.0}}, "powr: no such key; did you mean power"),
        ({"loss": {"name": "object:loss"}}, "was an object of a Python program"),
    ],
)
def test_what_is_wrong_with_a_name_or_its_settings_is_said(
    own_module: str, tables: dict[str, dict[str, object]], message: str
) -> None:
    for part in tables.values():
        part["name"] = str(part["name"]).format(own_module)

    with pytest.raises(ConfigError, match=message):
        recipe_of(**tables)


def test_a_function_of_any_options_takes_any(own_module: str) -> None:
    recipe = recipe_of(model={"name": f"{own_module}:any_net", "depth": 3})

    assert build_model(recipe.model, InputSpec((6,)), 3) is not None


def test_a_run_says_whose_code_it_runs(own_module: str, tmp_path: Path) -> None:
    name = f"{own_module}:MyNet"
    find_own(name)

    (sentence,) = describe_own(name, "focal")

    assert sentence == f"model.name = {name!r} runs code of {tmp_path / own_module}.py"


def test_a_network_of_timm_is_not_ones_own() -> None:
    assert not is_own("timm:resnet18")
    assert not is_own("probe")


def test_an_object_has_the_name_it_can_be_imported_by() -> None:
    assert name_of(Path, "model") in {"pathlib:Path", "pathlib._local:Path"}
    assert name_of(lambda: None, "loss") == "object:loss"


def test_objects_are_known_until_the_block_ends() -> None:
    with known_objects({"object:train": 3}):
        assert find_own("object:train") == 3
    with pytest.raises(ConfigError, match="only that program has it"):
        find_own("object:train")
