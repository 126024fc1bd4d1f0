"""The tables of a recipe: the kinds of each, their keys, and what these need to have an effect."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, get_args

from pydantic.fields import FieldInfo

from trainer.config import Needs, Recipe, Table, needs
from trainer.recipes.messages import did_you_mean, wrong_value

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
    members: Mapping[str, type[Table]]

    @property
    def default(self) -> str:
        """Kind of a table that names none."""
        return next(iter(self.members))

    def of(self, values: Mapping[str, Any]) -> type[Table]:
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
    members: tuple[type[Table], ...] = get_args(field.annotation) or (field.annotation,)
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
