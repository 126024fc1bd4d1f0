"""The text of a JSON file with the places of its values, so that only some of them are replaced."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from json.decoder import scanstring  # type: ignore[attr-defined]
from typing import Any

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.storage import StoredPath

Span = tuple[int, int]
"""First character of a value, and the one after its last."""

Take = Callable[[Any, Span], None]
"""Is given an element of a list and where it is."""

TextEdit = tuple[int, int, str]
"""The first character that is replaced, the one after the last, and what comes there."""

_BLANK = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder()
"""Parses a value at a place in a text."""


@contextmanager
def parsing(place: StoredPath) -> Iterator[None]:
    """Raises DatasetError where the text of a file turns out to be none of its format."""
    try:
        yield
    except (ValueError, IndexError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else error
        raise DatasetError(
            f"{place.name!r} is damaged: {reason or 'it ends too early'}", "write it again"
        ) from error


def first_character(text: str) -> int:
    """The place of the first character that is neither a blank nor a mark of the encoding."""
    return skip_blanks(text, 1 if text.startswith("\ufeff") else 0)


def walk_object(text: str, at: int, take: Mapping[str, Take]) -> dict[str, Span]:
    """Where each member of the object at a place is; gives elements of lists to functions."""
    if text[at] != "{":
        raise ValueError("it is not an object")
    members = dict[str, Span]()
    at = skip_blanks(text, at + 1)
    while text[at] != "}":
        if text[at] != '"':
            raise ValueError(f"{text[at : at + 20]!r} is no name of a member")
        name, at = scanstring(text, at + 1, True)  # noqa: FBT003
        at = skip_blanks(text, at)
        if text[at] != ":":
            raise ValueError(f"no colon after {name!r}")
        start = skip_blanks(text, at + 1)
        if name in take and text[start] == "[":
            end = walk_list(text, start, take[name])
        else:
            end = DECODER.raw_decode(text, start)[1]
        members[name] = (start, end)
        at = _next(text, end, "}")
    return members


def walk_list(text: str, at: int, take: Take) -> int:
    """Gives each object of the list at a place to a function; the character after the list."""
    at = skip_blanks(text, at + 1)
    while text[at] != "]":
        value, end = DECODER.raw_decode(text, at)
        if not isinstance(value, dict):
            raise ValueError(f"a list has {str(value)[:20]!r}, which is no object")  # noqa: TRY004
        take(value, (at, end))
        at = _next(text, end, "]")
    return at + 1


def _next(text: str, at: int, last: str) -> int:
    """Where the next element begins after one that ends here, or the bracket that is the last."""
    at = skip_blanks(text, at)
    if text[at] == last:
        return at
    if text[at] != ",":
        raise ValueError(f"no comma at character {at:,}")
    following = skip_blanks(text, at + 1)
    if text[following] == last:
        raise ValueError(f"a comma before {last!r} at character {at:,}")
    return following


def skip_blanks(text: str, at: int) -> int:
    """The first place from here on without a blank."""
    return _BLANK.match(text, at).end()  # type: ignore[union-attr]


def removals(spans: Sequence[Span], removed: set[int]) -> list[TextEdit]:
    """What takes elements out of a list with the commas after them, or before the last ones."""
    last = len(spans)
    while last - 1 in removed:
        last -= 1
    edits = [(spans[each][0], spans[each + 1][0], "") for each in removed if each < last]
    if last < len(spans):
        edits.append((spans[last - 1][1] if last else spans[0][0], spans[-1][1], ""))
    return edits
