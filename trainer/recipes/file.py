"""Recipes as TOML: read with overrides, checked as a whole, and converted back to values."""

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from difficulty_service.errors import ConfigError
from trainer.config import LossConfig, Recipe
from trainer.losses import LOSSES, LOSSES_WITH_MEMORY, loss_constants
from trainer.models import AMBIGUOUS, MODELS, PREFIXES, model_options
from trainer.own_code import is_own
from trainer.recipes.checks import contradictions
from trainer.recipes.effects import changed_keys, keys_without_effect, with_defaults
from trainer.recipes.messages import (
    did_you_mean,
    one_message,
    unknown_key,
    wrong_constant,
    wrong_value,
    wrong_values,
)
from trainer.recipes.overrides import (
    Change,
    decisive,
    keys_of,
    keys_of_overrides,
    split_overrides,
    with_overrides,
)
from trainer.recipes.own_settings import wrong_own_settings
from trainer.recipes.tables import (
    OPEN_TABLES,
    TABLES,
    home_of,
    keys_of_table,
    unknown_top_level_key,
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

    Raises:
        ConfigError: There is no such recipe, or it is invalid; the message lists all problems.
    """
    changes = split_overrides(overrides)
    source = f"{path} with {', '.join(overrides)}" if overrides else str(path)
    return changed_recipe(read_values(path), changes, source, in_sweep=in_sweep)


def read_values(path: Path | str) -> dict[str, Any]:
    """Reads the values of a recipe's file, or of one that ships with the package, unchecked.

    Raises:
        ConfigError: There is no such recipe, or it is no TOML.
    """
    file = _find(path)
    return {"name": Path(file.name).stem} | _parse(file, str(path))


def changed_recipe(
    values: dict[str, Any], changes: Sequence[Change], source: str, *, in_sweep: bool = False
) -> Recipe:
    """Makes a recipe from the values that its file has and changes of them; see `read_recipe`.

    Args:
        values: Values of the file, which are changed in place.
        changes: Changes, each of another key.
        source: Source of the values, for messages.
        in_sweep: Whether alpha may be 0 with weights by scores, which is the plain loss.

    Raises:
        ConfigError: The values are invalid; the message lists all problems.
    """
    kept = {table: keys_of_table(table) for table in OPEN_TABLES}
    values = with_overrides(values, changes, kept)
    recipe = _build(values, source)
    written, changed = keys_of(values), keys_of_overrides(changes)
    without_effect = keys_without_effect(recipe, written - changed)
    obsolete = [
        key
        for key, condition in without_effect.items()
        if not changed.isdisjoint(decisive(condition.decided_by))
    ]
    recipe = with_defaults(recipe, obsolete)
    given = written - set(obsolete)
    _require_consistent(contradictions(recipe, given, in_sweep=in_sweep), source)
    return recipe


def recipe_from_dict(values: Mapping[str, Any], source: str, *, in_sweep: bool = False) -> Recipe:
    """Makes a recipe from all its values, as `recipe_as_dict` gives them.

    A key without an effect may have its default value; any other value is an error.

    Args:
        values: The name, and one mapping per table.
        source: Source of the values, for messages.
        in_sweep: Whether alpha may be 0 with weights by scores, which is the plain loss.

    Raises:
        ConfigError: The values are invalid; the message lists all problems.
    """
    recipe = _build(values, source)
    _require_consistent(contradictions(recipe, changed_keys(recipe), in_sweep=in_sweep), source)
    return recipe


def _require_consistent(problems: list[str], source: str) -> None:
    if problems:
        raise ConfigError(one_message(source, problems))


def _build(values: Mapping[str, Any], source: str) -> Recipe:
    """Makes a recipe whose values are valid by themselves."""
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
    _require_consistent(problems, source)
    return Recipe(name=values["name"], **parts)


def recipe_as_dict(recipe: Recipe) -> dict[str, Any]:
    """Converts a recipe to the values of its file, which JSON and TOML can hold.

    Args:
        recipe: Any recipe; None is left out, as TOML has no value for it.

    Returns:
        Values that `recipe_from_dict` converts to the same recipe.
    """
    values: dict[str, Any] = {"name": recipe.name}
    for table in TABLES:
        part = asdict(getattr(recipe, table))
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
    neighbours = [other.name for other in file.parent.glob("*.toml")]
    raise ConfigError(
        f"no recipe {str(path)!r}: neither a file nor one that ships with the package"
        f"{did_you_mean(file.name, [*shipped, *neighbours])} Shipped recipes: "
        f"{', '.join(shipped)}"
    )


def _parse(file: Traversable, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_bytes().decode())
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source} is not valid TOML: {error}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{source} is not text in UTF-8: {error.reason}") from error
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from error


def _read_table(table: str, values: object) -> tuple[Any, list[str]]:
    """The configuration of one table, None if it is invalid, and its problems."""
    if not isinstance(values, Mapping):
        return None, [wrong_value(table, values, f"must be a table, [{table}]")]
    field, known = OPEN_TABLES.get(table), keys_of_table(table)
    settings = {key: value for key, value in values.items() if key not in known}
    if field:
        default_name = LossConfig().name if table == "loss" else None
        problems = _wrong_settings(table, values.get("name", default_name), settings)
        nested = {field: {key: _frozen(value) for key, value in settings.items()}}
    else:
        problems = [unknown_key(f"[{table}]", key, known, home_of(key)) for key in settings]
        nested = {}
    own = json.dumps({key: values[key] for key in known if key in values}, default=str)
    try:
        # Only JSON lists become tuples; strict, as 3.0 epochs or "yes" are mistakes.
        part: Any = TypeAdapter(TABLES[table]).validate_json(own, strict=True)
    except ValidationError as error:
        return None, problems + wrong_values(table, error)
    return replace(part, **nested), problems


def _wrong_settings(table: str, name: object, settings: Mapping[str, Any]) -> list[str]:
    """The problems of the name of a loss or model and of its settings."""
    if not isinstance(name, str):
        return []  # reported as missing or of a wrong type
    if is_own(name):
        return wrong_own_settings(table, name, settings)
    if table == "model" and name in AMBIGUOUS:
        return [wrong_value("model.name", name, AMBIGUOUS[name])]
    names = sorted(MODELS) if table == "model" else sorted(LOSSES | LOSSES_WITH_MEMORY)
    if name not in names and not (table == "model" and name.startswith(PREFIXES)):
        patterns = [f"{prefix}NAME" for prefix in PREFIXES] if table == "model" else []
        choices = ", ".join([*names, *patterns, "package.module:name"])
        choice = f"no such {table}{did_you_mean(name, names)} Choose one of {choices}"
        return [wrong_value(f"{table}.name", name, choice)]
    defaults = model_options(name) if table == "model" else loss_constants(name)
    problems = []
    for key, value in settings.items():
        if key not in defaults:
            known = [*defaults, *(each for each in keys_of_table(table) if each != "name")]
            problems.append(unknown_key(f'[{table}] of name "{name}"', key, known))
        else:
            problems += wrong_constant(f"{table}.{key}", value, defaults[key])
    return problems


def _frozen(value: Any) -> Any:  # noqa: ANN401 - any TOML value
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


def _listed(value: Any) -> Any:  # noqa: ANN401 - any value of a recipe
    return list(map(_listed, value)) if isinstance(value, list | tuple) else value
