"""Numbers and lists in sentences, and what is wrong with a value.

Compares the descriptions of two stores, Gaussians, runs or machines.
"""

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from pydantic import ValidationError

Noun = Literal["image", "text", "object", "sample"]
"""What a sample is in a word: an object is one in a box of an image, and a sample anything at all,
where features were given in its place."""

UNUSUAL: Mapping[Noun, str] = {
    "image": "rare views, odd crops, broken or foreign pictures",
    "text": "rare topics, other languages, broken or foreign texts",
    "object": "rare views, hidden or cut off objects, boxes around something else",
    "sample": "rare kinds, broken or foreign samples",
}
"""What samples that are unlike all others may be."""

SHOWN = 5
"""Number of names in a sentence, after which the others are counted."""


_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")
"""What controls a terminal or the direction of a text, but for tabs and ends of lines."""


def without_control(text: str) -> str:
    """The text with what would control a terminal spelled out, such as in the name of a file."""
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def list_names(names: Sequence[str], shown: int = SHOWN) -> str:
    """The first names with commas between, and how many more there are."""
    more = f" and {len(names) - shown:,} more" if len(names) > shown else ""
    return ", ".join(names[:shown]) + more


def count_of(number: int, noun: str, plural: str | None = None) -> str:
    """A number and its noun, such as `1 image` or `2,000 images`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def one_of(noun: str) -> str:
    """The noun with its article, such as `an image`."""
    return f"{'an' if noun[0] in 'aeiou' else 'a'} {noun}"


def is_or_are(number: int) -> str:
    """The verb of that many things."""
    return "is" if number == 1 else "are"


LONGEST_VALUE = 60
"""Number of characters after which a value is truncated."""


def differences(
    first: Mapping[str, Any],
    second: Mapping[str, Any],
    *,
    names: tuple[str, str] = ("then", "now"),
    ignored: Collection[str] = (),
) -> list[str]:
    """How two descriptions differ, a phrase for each key; empty where they agree.

    A nested key is written `outer.inner`. The names follow the values, as in `seed: 0 then, 1 now`.
    """
    one, other = (
        flatten({key: value for key, value in each.items() if key not in ignored})
        for each in (first, second)
    )
    return [
        f"{key}: {_short(one, key)} {names[0]}, {_short(other, key)} {names[1]}"
        for key in sorted(one.keys() | other.keys())
        if one.get(key) != other.get(key)
    ]


def flatten(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested mappings by their path, such as `outer.inner`."""
    flat: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat |= flatten(value, f"{prefix}{key}.")
        else:
            flat[prefix + key] = value
    return flat


def _short(values: Mapping[str, Any], key: str) -> str:
    if key not in values:
        return "none"
    text = json.dumps(values[key], ensure_ascii=False, default=str)
    return text if len(text) <= LONGEST_VALUE else text[: LONGEST_VALUE - 3] + "..."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The known name that is most like another one, as a question; empty where none is."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}? " if close else ""


def explain_invalid(error: "ValidationError", spell: Callable[[str, Any], str]) -> str:
    """Each option with its value and what was expected, the alternatives of one joined by `or`.

    Args:
        spell: Function from an option and its value to how a caller writes them.
    """
    reasons: dict[str, list[str]] = {}
    suggestions = []
    for each in error.errors(include_url=False):
        call, value = spell(str(each["loc"][0]), each["input"]), each["input"]
        expected = each["msg"].removeprefix("Input ").removeprefix("Value error, ")
        reasons.setdefault(call if expected.startswith("should") else f"{call}:", []).append(
            expected
        )
        if each["type"] == "literal_error" and isinstance(value, str):
            suggestions.append(did_you_mean(value, re.findall("'(.+?)'", each["ctx"]["expected"])))
    sentences = [f"{call} {' or '.join(expected)}" for call, expected in reasons.items()]
    sentence = "; ".join(sentences).replace(" or should ", " or ")
    return "; ".join(filter(None, [sentence, "".join(suggestions).strip()]))
