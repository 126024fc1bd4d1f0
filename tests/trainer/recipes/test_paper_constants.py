"""The recipes that ship with the package have the constants of their papers and of their code."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainer.losses import loss_constants
from trainer.recipes.file import read_recipe, recipe_as_dict, shipped_recipes

CONSTANTS = tomllib.loads(
    (Path(__file__).parents[2] / "data" / "paper_constants.toml").read_text()
)["constants"]
OF_THE_READER = {
    *("name", "data.kind", "data.train", "data.test", "data.split", "data.test_split"),
    *("data.text_column", "data.label_column"),
}
"""Keys of a file that say where data are and how they are read."""

WITHOUT_HELD_OUT = {"sst_quick", "tree_lstm_sst"}
"""Recipes whose validation data are a split of their own."""


def constants_of(name: str) -> dict[str, Any]:
    """What the groups say about a recipe; no key is in two of them."""
    values: dict[str, Any] = {}
    for group in CONSTANTS:
        if name in group["recipes"]:
            assert values.keys().isdisjoint(group["values"])
            values |= group["values"]
    return values


def keys_of(tables: Mapping[str, Any]) -> dict[str, Any]:
    """Values by table and key, such as "loss.gamma"."""
    return {
        f"{table}.{key}": value
        for table, values in tables.items()
        if isinstance(values, Mapping)
        for key, value in values.items()
    }


@pytest.mark.parametrize("name", shipped_recipes())
def test_a_recipe_has_the_constants_that_its_sources_give(name: str) -> None:
    recipe = read_recipe(name)
    defaults = {f"loss.{key}": value for key, value in loss_constants(recipe.loss.name).items()}
    values = defaults | keys_of(recipe_as_dict(recipe))

    expected = constants_of(name)

    assert expected, f"no constants of {name} in paper_constants.toml"
    assert {key: values.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", shipped_recipes())
def test_every_key_of_a_recipe_has_a_source(name: str) -> None:
    written = keys_of(tomllib.loads(shipped_recipes()[name].read_text(encoding="utf-8")))
    elsewhere = OF_THE_READER | (
        {"data.validation", "data.validation_split"} if name in WITHOUT_HELD_OUT else set()
    )

    assert written.keys() - elsewhere - constants_of(name).keys() == set()


def test_constants_are_of_recipes_that_exist() -> None:
    assert {name for group in CONSTANTS for name in group["recipes"]} == shipped_recipes().keys()


def test_quotes_stand_in_the_texts_that_they_are_from(shared: Path) -> None:
    groups = [group for group in CONSTANTS if "text" in group]
    files = {group["text"]: sorted(shared.glob(f"papers/{group['text']}")) for group in groups}
    if missing := [name for name, found in files.items() if len(found) != 1]:
        pytest.skip(f"{shared} has no papers/{', papers/'.join(missing)}")
    texts = {name: found[0].read_text() for name, found in files.items()}

    assert [
        quote for group in groups for quote in group["quotes"] if quote not in texts[group["text"]]
    ] == []
