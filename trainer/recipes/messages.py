"""What is wrong in a recipe, in words of its file: the key, its value, what was expected."""

import difflib
import json
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

from pydantic import ValidationError

LONGEST_VALUE = 80

# What a value must be, by pydantic's name of the fault.
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
    """All problems of a recipe in one text, one line each.

    Args:
        source: Where the recipe comes from.
        problems: At least one.
    """
    if len(problems) == 1:
        return f"{source}: {problems[0]}"
    return "\n  ".join((f"{source}: {len(problems)} problems", *problems))


def wrong_value(key: str, value: object, remedy: str) -> str:
    """One value that cannot be.

    Args:
        key: With its table, as in "training.epochs".
        value: As read.
        remedy: What it must be, or what to do.
    """
    shown = json.dumps(value, default=str, ensure_ascii=False)
    return f"{key} = {textwrap.shorten(shown, LONGEST_VALUE, placeholder=' ...')}: {remedy}"


def unknown_key(where: str, key: str, known: Iterable[str], home: str | None = None) -> str:
    """A key that nothing reads.

    Args:
        where: "[training]" for a table of that name.
        key: As read.
        known: The keys that may stand there.
        home: Where a key of that name does belong, if anywhere.
    """
    names = list(known)
    hint = f"; it belongs in {home}." if home else did_you_mean(key, names)
    return f"{where} {key}: no such key{hint} {where} takes {', '.join(names) or 'none'}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The likeliest of some names, as the middle of a sentence; a full stop where none is like it.

    Args:
        name: What was written.
        known: What could have been.
    """
    close = difflib.get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]}?" if close else "."


def wrong_values(table: str, error: ValidationError) -> list[str]:
    """Every fault that validation found in one table.

    Args:
        table: Its name.
        error: What validation raised; unknown keys must have been taken out before.

    Returns:
        One problem per value, in the order of the configuration.
    """
    missing: list[str] = []
    values: dict[str, object] = {}
    expected: dict[str, list[str]] = {}
    for fault in error.errors(include_url=False):
        key = _key(table, fault["loc"])
        if fault["type"] == "missing":
            missing.append(f"[{table}] {fault['loc'][0]}: is missing; every recipe needs it")
            continue
        values[key] = fault["input"]
        expected.setdefault(key, []).append(_expected(fault["type"], fault))
    return missing + [
        # A value of two possible types has one fault for each of them.
        wrong_value(key, values[key], f"must be {', or '.join(phrases)}")
        for key, phrases in expected.items()
    ]


def _key(table: str, location: tuple[int | str, ...]) -> str:
    """`table.key`, or `table.key[2]` for an entry of a list, without pydantic's names of types."""
    entries = "".join(f"[{part}]" for part in location[1:] if isinstance(part, int))
    return f"{table}.{location[0]}{entries}"


def _expected(kind: str, fault: Mapping[str, Any]) -> str:
    """What a value must be, given one fault."""
    if kind not in EXPECTED:
        return f"something else: {fault['msg']}"
    return EXPECTED[kind].format_map(fault.get("ctx", {}))


def wrong_constant(key: str, value: object, default: object) -> list[str]:
    """A constant of a loss or option of a model whose type is not that of its default.

    Args:
        key: With its table.
        value: As read.
        default: None fits anything.

    Returns:
        One problem or none.
    """
    kinds: tuple[tuple[type, type | tuple[type, ...], str], ...] = (
        (bool, bool, "true or false"),
        (int, int, "a whole number"),
        (float, (int, float), "a number"),
        (str, str, "text"),
        (tuple, (list, tuple), "a list, such as [1, 2]"),
    )
    for kind, accepted, expected in kinds:
        if isinstance(default, kind):
            # A bool is an int to Python, not to whoever wrote the recipe.
            fits = isinstance(value, accepted) and isinstance(value, bool) == (kind is bool)
            return [] if fits else [wrong_value(key, value, f"must be {expected}")]
    return []
