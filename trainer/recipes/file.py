"""Recipes as TOML: read with overrides, checked as a whole, and converted back to values."""

import json
import shlex
import tomllib
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from difficulty_service.base.errors import ConfigError
from trainer.config import LossConfig, Recipe
from trainer.config.table import Needs, RecipeTable
from trainer.recipes.checks import contradictions, wrong_settings
from trainer.recipes.overrides import (
    Change,
    decisive,
    keys_of,
    keys_of_overrides,
    split_overrides,
    with_overrides,
)
from trainer.recipes.tables import (
    OPEN_TABLES,
    TABLES,
    defaults_of,
    did_you_mean,
    home_of,
    keys_of_other_kinds,
    keys_of_table,
    one_message,
    unknown_key,
    unknown_top_level_key,
    unmet_needs,
    without_effect,
    wrong_value,
    wrong_values,
)


def read_recipe(
    path: Path | str, overrides: Sequence[str] = (), *, in_sweep: bool = False
) -> Recipe:
    """Reads a recipe from a file, or one that ships with the package.

    A key that has no effect is an error, whatever its value. Only a key of the file that loses its
    effect by an override, as `schedule.milestones` by "schedule.name=cosine", is removed instead.

    Args:
        path: A TOML file, or a key of `shipped_recipes`.
        overrides: Changes such as "loss.gamma=3", "training.seeds=[0, 1]" or "name=x", each of
            another key. A value is TOML or else plain text; an empty value removes the key.
            Changing the name of the loss or the model removes the settings of the previous one, in
            any order of the changes.
        in_sweep: Whether alpha may be 0 with weights by scores, which is the plain loss.
    """
    changes = split_overrides(overrides)
    source = f"{path} with {', '.join(overrides)}" if overrides else str(path)
    return changed_recipe(read_values(path), changes, source, in_sweep=in_sweep)


def read_values(path: Path | str) -> dict[str, Any]:
    """Reads the values of a recipe's file, or of one that ships with the package, unchecked."""
    file = _find(path)
    return {"name": Path(file.name).stem} | _parse(file, str(path))


def changed_recipe(
    values: dict[str, Any], changes: Sequence[Change], source: str, *, in_sweep: bool = False
) -> Recipe:
    """Makes a recipe from the values of its file, changed in place; see `read_recipe`."""
    kept = {table: keys_of_table(table) for table in OPEN_TABLES}
    values = with_overrides(values, changes, kept)
    changed = keys_of_overrides(changes)

    def is_obsolete(key: str, need: Needs) -> bool:
        return key not in changed and not changed.isdisjoint(decisive(need.keys))

    return _build(values, source, is_obsolete, in_sweep=in_sweep)


def recipe_from_dict(values: Mapping[str, Any], source: str, *, in_sweep: bool = False) -> Recipe:
    """Makes a recipe from all its values, as `recipe_as_dict` gives them; errors as above.

    A key without an effect may have its default value; any other value is an error.
    """

    def is_default(key: str, _need: Needs) -> bool:
        table, name = key.split(".")
        return bool(_frozen(values[table][name]) == defaults_of(table)[name])

    return _build(values, source, is_default, in_sweep=in_sweep)


def _build(
    values: Mapping[str, Any],
    source: str,
    may_be_left_out: Callable[[str, Needs], bool],
    *,
    in_sweep: bool,
) -> Recipe:
    """Makes a recipe, without those of its keys without an effect that may be left out."""
    foreign = keys_of_other_kinds(values)
    recipe = _parse_tables(_without(values, foreign), source)
    idle = foreign | unmet_needs(recipe, keys_of(values))
    problems = [
        without_effect(recipe, key, values[table][name], need)
        for key, need in idle.items()
        if not may_be_left_out(key, need)
        for table, name in [key.split(".")]
    ]
    recipe = _parse_tables(_without(values, idle), source)
    _require_none(problems + contradictions(recipe, in_sweep=in_sweep), source)
    return recipe


def _without(values: Mapping[str, Any], keys: Mapping[str, Needs]) -> dict[str, Any]:
    """The values of a recipe without some keys."""
    return {
        table: {name: value for name, value in part.items() if f"{table}.{name}" not in keys}
        if isinstance(part, Mapping)
        else part
        for table, part in values.items()
    }


def _require_none(problems: list[str], source: str) -> None:
    if problems:
        raise ConfigError(one_message(source, problems))


def _parse_tables(values: Mapping[str, Any], source: str) -> Recipe:
    """Makes a recipe whose tables are valid by themselves, and have no keys of another kind."""
    problems = [
        unknown_top_level_key(key, value)
        for key, value in values.items()
        if key not in TABLES and key != "name"
    ]
    if not isinstance(values.get("name"), str):
        problems.append(wrong_value("name", values.get("name"), "must be text"))
    parts = {}
    for table in TABLES:
        parts[table], table_problems = _read_table(table, values.get(table, {}))
        problems += table_problems
    _require_none(problems, source)
    return Recipe.model_validate({"name": values["name"], **parts})


def recipe_as_dict(recipe: Recipe) -> dict[str, Any]:
    """Converts a recipe to the values of its file, which JSON and TOML can hold.

    None is left out, as TOML has no value for it. Keys of other kinds are there, too, with their
    defaults; `recipe_from_dict` makes the same recipe of the values.
    """
    return _values(recipe, {table: defaults_of(table) for table in TABLES})


def effective_values(recipe: Recipe) -> dict[str, Any]:
    """Converts a recipe to the values of its file, without keys that have no effect."""
    values = _values(recipe, {table: {} for table in TABLES})
    return _without(values, unmet_needs(recipe, keys_of(values)))


def _values(recipe: Recipe, defaults: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    values: dict[str, Any] = {"name": recipe.name}
    for table in TABLES:
        part = {**defaults[table], **getattr(recipe, table).model_dump()}
        part |= part.pop(OPEN_TABLES.get(table, ""), {})
        values[table] = {key: _listed(value) for key, value in part.items() if value is not None}
    return values


def shipped_recipes() -> dict[str, Traversable]:
    """The recipes that ship with the package: file by name, in alphabetical order."""
    folder = (files("trainer") / "recipes").iterdir()
    return {
        Path(file.name).stem: file
        for file in sorted(folder, key=lambda file: file.name)
        if file.name.endswith(".toml")
    }


def _find(path: Path | str) -> Traversable:
    file = Path(path)
    if file.is_file():
        return file
    shipped = shipped_recipes()
    name = str(path).removesuffix(".toml")
    if name in shipped:
        return shipped[name]
    if file.is_dir():
        raise ConfigError(f"{path} is a folder and no recipe{_for_data(str(path))}")
    neighbours = [other.name for other in file.parent.glob("*.toml")]
    raise ConfigError(
        f"no recipe {str(path)!r}: neither a file nor one that ships with the package"
        f"{did_you_mean(file.name, [*shipped, *neighbours])} Shipped recipes: "
        f"{', '.join(shipped)}"
    )


def _for_data(path: str) -> str:
    """What to do with data that is named in the place of a recipe."""
    return (
        "; to train on a dataset or on features, choose a recipe by `difficulty train --list` and "
        f"add --set data.train={shlex.quote(path)}"
    )


def _parse(file: Traversable, source: str) -> dict[str, Any]:
    remedy = "" if source.lower().endswith(".toml") else _for_data(source)
    try:
        return tomllib.loads(file.read_bytes().decode())
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise ConfigError(f"{source} is not valid TOML: {error}{remedy}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not text in UTF-8: {error.reason}{remedy}") from error
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from error


def _read_table(table: str, values: object) -> tuple[RecipeTable | None, list[str]]:
    """The configuration of one table, None if it is invalid, and its problems."""
    if not isinstance(values, Mapping):
        return None, [wrong_value(table, values, f"must be a table, [{table}]")]
    kinds, known, open_field = TABLES[table], keys_of_table(table), OPEN_TABLES.get(table)
    settings = {key: value for key, value in values.items() if key not in known}
    own = {key: values[key] for key in known if key in values}
    if open_field:
        default_name = LossConfig().name if table == "loss" else None
        problems = wrong_settings(table, values.get("name", default_name), settings)
    else:
        problems = [unknown_key(f"[{table}]", key, known, home_of(key)) for key in settings]
    if kinds.tag and own.get(kinds.tag, kinds.default) not in [*kinds.members]:
        *names, last = map(repr, kinds.members)
        remedy = f"must be {', '.join(names)} or {last}"
        problems.append(wrong_value(f"{table}.{kinds.tag}", own.pop(kinds.tag), remedy))
    try:
        # Only JSON lists become tuples; strict, as 3.0 epochs or "yes" are mistakes.
        part = kinds.of(own).model_validate_json(json.dumps(own, default=str), strict=True)
    except ValidationError as error:
        return None, problems + wrong_values(table, error)
    if open_field:
        frozen = {key: _frozen(value) for key, value in settings.items()}
        part = part.model_copy(update={open_field: frozen})
    return part, problems


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _listed(value: Any) -> Any:  # noqa: ANN401 - any value of a recipe
    return list(map(_listed, value)) if isinstance(value, list | tuple) else value
