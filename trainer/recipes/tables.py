"""The tables of a recipe: their kinds and keys, what keys need, and messages about their problems.

A message names the key, its value and the expected values.
"""

import difflib
import json
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo

from trainer.config import Recipe
from trainer.config.table import Needs, RecipeTable, needs

LONGEST_VALUE = 80

# Expected values by pydantic's type of the error.
EXPECTED = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "greater than {gt:g}",
    "greater_than_equal": "at least {ge:g}",
    "int_type": "a whole number",
    "less_than": "less than {lt:g}",
    "less_than_equal": "at most {le:g}",
    "literal_error": "{expected}",
    "string_type": "text",
    "too_short": "a list of at least {min_length}",
    "tuple_type": "a list, such as [1, 2]",
}


def one_message(source: str, problems: list[str]) -> str:
    """All problems of a recipe in one text, one line each."""
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    return "\n  ".join((f"{source}: {len(problems)} problems", *problems))


def wrong_value(key: str, value: object, remedy: str) -> str:
    """The message about an invalid value."""
    shown = json.dumps(value, default=str, ensure_ascii=False)
    return f"{key} = {textwrap.shorten(shown, LONGEST_VALUE, placeholder=' ...')}: {remedy}"


def unknown_key(where: str, key: str, known: Iterable[str], home: str | None = None) -> str:
    """The message about an unknown key."""
    names = list(known)
    hint = f"; it belongs in {home}." if home else did_you_mean(key, names)
    return f"{where} {key}: no such key{hint} {where} takes {', '.join(names) or 'none'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A suggestion of the most similar name as a clause; a full stop where none is similar."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "."


def wrong_values(table: str, error: ValidationError) -> list[str]:
    """The messages about all errors that validation found in one table."""
    missing: list[str] = []
    values: dict[str, object] = {}
    remedies: dict[str, str] = {}
    for detail in error.errors(include_url=False):
        key, kind = _key(table, detail["loc"]), detail["type"]
        values[key] = detail["input"]
        if kind == "missing":
            missing.append(f"[{table}] {detail['loc'][0]}: is missing; every recipe needs it")
        elif kind == "value_error":
            remedies[key] = str(detail["ctx"]["error"])
        else:
            # A value of two possible types has one error for each of them.
            start = f"{remedies[key]}, or" if key in remedies else "must be"
            remedies[key] = f"{start} {_expected(kind, detail)}"
    return missing + [wrong_value(key, values[key], remedy) for key, remedy in remedies.items()]


def _key(table: str, location: tuple[int | str, ...]) -> str:
    """`table.key`, or `table.key[2]` for an entry of a list, without pydantic's names of types."""
    entries = "".join(f"[{part}]" for part in location[1:] if isinstance(part, int))
    return f"{table}.{location[0]}{entries}"


def _expected(kind: str, detail: Mapping[str, Any]) -> str:
    """The expected values, for one error."""
    if kind not in EXPECTED:
        return f"something else: {detail['msg']}"
    return EXPECTED[kind].format_map(detail.get("ctx", {}))


# Tables with a `name` whose other keys are settings of the named thing, and the field for these.
OPEN_TABLES = {"model": "options", "loss": "constants"}


@dataclass(frozen=True)
class Kinds:
    """The kinds of a table.

    Attributes:
        tag: Key that names the kind; None for a table of one kind.
        members: Model of each kind, by its name; the first is the default.
    """

    tag: str | None
    members: Mapping[str, type[RecipeTable]]

    @property
    def default(self) -> str:
        """Kind of a table that names none."""
        return next(iter(self.members))

    def of(self, values: Mapping[str, Any]) -> type[RecipeTable]:
        """The model of some values; the default where they name no kind that there is."""
        kind = values.get(self.tag) if self.tag else None
        return self.members.get(kind if isinstance(kind, str) else "", self.members[self.default])

    def fields(self) -> dict[str, FieldInfo]:
        """The keys of all kinds, each as the first kind that has it defines it."""
        found: dict[str, FieldInfo] = {}
        for member in self.members.values():
            found = found | member.model_fields | found
        return found


def _kinds(field: FieldInfo) -> Kinds:
    members: tuple[type[RecipeTable], ...] = get_args(field.annotation) or (field.annotation,)
    tag = field.discriminator
    if not isinstance(tag, str):
        return Kinds(None, {"": members[0]})
    return Kinds(tag, {member.model_fields[tag].default: member for member in members})


TABLES = {table: _kinds(field) for table, field in Recipe.model_fields.items() if table != "name"}
"""The kinds of every table, in the order of a recipe."""


def keys_of_table(table: str) -> list[str]:
    """The keys of all kinds of a table but for the settings of a loss or a model."""
    return [key for key in TABLES[table].fields() if key != OPEN_TABLES.get(table)]


def defaults_of(table: str) -> dict[str, Any]:
    """The default value of every key of a table that has one, whatever kind it belongs to."""
    return {
        key: field.get_default(call_default_factory=True)
        for key, field in TABLES[table].fields().items()
        if not field.is_required()
    }


def keys_of_other_kinds(values: Mapping[str, Any]) -> dict[str, Needs]:
    """Keys of a recipe that belong to another kind of their table, each with what it needs."""
    found = {}
    for table, kinds in TABLES.items():
        part = values.get(table)
        if kinds.tag is None or not isinstance(part, Mapping):
            continue
        known = kinds.of(part)
        for key in part:
            homes = [name for name, kind in kinds.members.items() if key in kind.model_fields]
            if homes and key not in known.model_fields:
                remedy = known.hints.get(key, "remove it")
                found[f"{table}.{key}"] = needs(f"{table}.{kinds.tag}", *homes, remedy=remedy)
    return found


def unmet_needs(recipe: Recipe, keys: Iterable[str]) -> dict[str, Needs]:
    """Those of some keys that have no effect as another key is, each with what it needs."""
    found = {}
    for key in keys:
        table, _, name = key.partition(".")
        field = type(getattr(recipe, table)).model_fields.get(name)
        for need in field.metadata if field else ():
            if isinstance(need, Needs) and not need.holds(*_deciding(recipe, need)):
                found[key] = need
    return found


def without_effect(recipe: Recipe, key: str, value: object, need: Needs) -> str:
    """The message about a key without an effect, with its remedy."""
    return wrong_value(key, value, need.remedy.format(*_deciding(recipe, need)))


def _deciding(recipe: Recipe, need: Needs) -> list[Any]:
    """The values of the keys that decide whether a key has an effect."""
    pairs = (key.split(".") for key in need.keys)
    return [getattr(getattr(recipe, table), name) for table, name in pairs]


def unknown_top_level_key(key: str, value: object) -> str:
    """The message about a key of a recipe outside its tables, or about a table that it lacks."""
    known = ["name", *(f"[{table}]" for table in TABLES)]
    is_table = isinstance(value, Mapping)
    home = None if is_table else home_of(key)
    shown = f"[{key}]" if is_table else key
    hint = f"; it belongs in {home}." if home else did_you_mean(shown, known)
    kind = "table" if is_table else "key outside the tables"
    return f"{shown}: no such {kind}{hint} A recipe has {', '.join(known)}"


def home_of(key: str) -> str | None:
    """The table with a key of that name, if there is exactly one."""
    homes = [table for table, kinds in TABLES.items() if key in kinds.fields()]
    # The head repeats keys of the classifier, which are meant more often.
    return f"[{homes[0]}]" if homes and len({*homes} - {"uncertainty"}) <= 1 else None
