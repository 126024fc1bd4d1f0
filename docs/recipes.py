"""Writes docs/recipes.md, the reference of the keys of a recipe, from their models.

Run: python docs/recipes.py
"""

import json
from pathlib import Path
from typing import Any

from trainer.config import Recipe
from trainer.recipes.tables import OPEN_TABLES, TABLES, Kinds

PAGE = Path(__file__).with_suffix(".md")

START = """# Keys of a recipe

<!-- Written by `python docs/recipes.py`; a test holds it against the models. -->

[A recipe](training.md#a-recipe) has a `name` and these tables. A key that ends with kinds in
brackets is an error with the other kinds. [Networks](training.md#networks) and
[losses](training.md#losses) have keys of their own.
"""

TYPES = {"boolean": "true, false", "integer": "whole number", "number": "number"}
BOUNDS = {"minimum": "≥", "exclusiveMinimum": ">", "maximum": "≤", "exclusiveMaximum": "<"}


def page() -> str:
    """The whole page."""
    return "\n".join([START, *(_section(table, kinds) for table, kinds in TABLES.items())])


def _section(table: str, kinds: Kinds) -> str:
    header = ["| key | values | default | what it is |", "| --- | --- | --- | --- |"]
    intro = Recipe.model_fields[table].description
    rows = _rows(table, kinds)
    return "\n".join([f"## `[{table}]`", "", f"{intro}", "", *header, *rows, ""])


def _rows(table: str, kinds: Kinds) -> list[str]:
    """One row for the key that names the kind, and for each sentence about another key."""
    described: dict[tuple[str, str], list[str]] = {}
    for kind, member in kinds.members.items():
        for key, field in member.model_fields.items():
            if key not in {kinds.tag, OPEN_TABLES.get(table)}:
                sentence = " ".join((field.description or "").split())
                described.setdefault((key, sentence), []).append(kind)
    rows = []
    if kinds.tag:
        meanings = " ".join(
            f'`"{kind}"`: {" ".join((member.__doc__ or "").split())}'
            for kind, member in kinds.members.items()
        )
        rows.append(f'| `{kinds.tag}` | | `"{kinds.default}"` | {meanings} |')
    for (key, sentence), names in described.items():
        member = kinds.members[names[0]]
        schema = member.model_json_schema()["properties"][key]
        where = "" if len(names) == len(kinds.members) else f" ({', '.join(names)})"
        rows.append(f"| `{key}` | {_values(schema)} | {_default(schema)} | {sentence}{where} |")
    return rows


def _default(schema: dict[str, Any]) -> str:
    if "default" not in schema:
        return "needed"
    return "none" if schema["default"] is None else f"`{json.dumps(schema['default'])}`"


def _values(schema: dict[str, Any]) -> str:
    """What a key may be, from its JSON schema."""
    if "anyOf" in schema:
        parts = [_values(each) for each in schema["anyOf"] if each.get("type") != "null"]
        return ", or ".join(parts)
    if "enum" in schema:
        return _quoted(schema["enum"])
    if schema["type"] == "array":
        return f"list: {_values(schema['items'])}"
    bounds = [f"{sign} {schema[key]}" for key, sign in BOUNDS.items() if key in schema]
    return " ".join([TYPES.get(schema["type"], "text"), ", ".join(bounds)]).rstrip()


def _quoted(names: list[str]) -> str:
    return ", ".join(f'`"{name}"`' for name in names)


if __name__ == "__main__":
    PAGE.write_text(page())
