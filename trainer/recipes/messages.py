"""Messages about problems of a recipe: the key, its value and the expected values."""

import difflib
import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

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
