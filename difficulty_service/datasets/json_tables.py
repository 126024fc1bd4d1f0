"""Tables in JSON: an object for each row, in a list or, as JSON Lines, one after another.

Under the name of JSON, a single object is no table of one row. Programs write anything as one, and
pandas, unless it is told otherwise, a member for each column.
"""

import io

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.json_text import NestedTooDeeply
from difficulty_service.base.wording import list_names
from difficulty_service.datasets.json_spans import (
    DECODER,
    Span,
    first_character,
    skip_blanks,
    walk_list,
)
from difficulty_service.datasets.storage import StoredPath, open_arrow_file

ENDING = ".json"

HEAD = 1 << 16
"""Bytes of the start of a file by which it is told."""

MOST_LIMITED = 1 << 29
"""Bytes of a file of whoever is not trusted, a row of which may be as large and take more memory.

A line of JSON Lines is limited by its reader.
"""

_SHOWN = 3
_BREAKS = str.maketrans("\r\n", "  ")


def read_json(place: StoredPath) -> str:
    """The text of a file of JSON; raises DatasetError where it is not UTF-8."""
    with open_arrow_file(place) as source:
        data = source.read()
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise DatasetError(f"{place.name!r} is not UTF-8", "save it as UTF-8") from error


def row_spans(text: str, name: str) -> list[Span]:
    """Where the object of each row is in the text of a file of this name.

    Raises:
        DatasetError: The text is no JSON, or no table.
        NestedTooDeeply: Lists or objects are inside more of them than Python parses.
    """
    try:
        return _rows(text, name)
    except RecursionError as error:
        raise NestedTooDeeply from error
    except (ValueError, IndexError) as error:
        reason = "it ends too early" if isinstance(error, IndexError) else error
        raise DatasetError(
            f"{name!r} cannot be read as a table: {reason}",
            'write a list with an object for each sample, such as [{"image": "a.jpg", "label": '
            '"cat"}], in pandas by `to_json(path, orient="records")`',
        ) from error


def _rows(text: str, name: str) -> list[Span]:
    spans = list[Span]()
    at = first_character(text)
    if text.startswith("[", at):
        at = skip_blanks(text, walk_list(text, at, lambda _, span: spans.append(span)))
        if at < len(text):
            raise ValueError(f"{text[at : at + 20]!r} follows its list")
        return spans
    while at < len(text):
        row, end = DECODER.raw_decode(text, at)
        if not isinstance(row, dict):
            raise ValueError(f"{text[at : at + 20]!r} is no object")  # noqa: TRY004
        spans.append((at, end))
        at = skip_blanks(text, end)
    if len(spans) == 1 and name.lower().endswith(ENDING):
        keys = list_names([*map(repr, DECODER.raw_decode(text, spans[0][0])[0])], _SHOWN)
        raise ValueError(f"it is one object, with {keys or 'nothing in it'}")
    return spans


def as_lines(text: str, name: str) -> io.BytesIO:
    """The rows of a text as JSON Lines; errors as for `row_spans`."""
    lines = io.BytesIO()
    for start, end in row_spans(text, name):
        lines.write(text[start:end].translate(_BREAKS).encode() + b"\n")
    lines.seek(0)
    return lines


def first_names(head: bytes, name: str) -> tuple[str, ...]:
    """The names in the first row of a table that begins so; none where that cannot be told."""
    text = head.decode(errors="ignore")
    at = first_character(text)
    is_list = text.startswith("[", at)
    try:
        row, end = DECODER.raw_decode(text, skip_blanks(text, at + is_list))
    except (ValueError, RecursionError):
        return ()
    is_one = name.lower().endswith(ENDING) and not text.startswith("{", skip_blanks(text, end))
    return tuple(row) if isinstance(row, dict) and (is_list or not is_one) else ()


def is_table(place: StoredPath) -> bool:
    """Whether a file begins as a table in JSON, and not as a single object."""
    head = _head(place)
    return _is_list(head) or bool(first_names(head, place.name))


def holds_list(place: StoredPath) -> bool:
    """Whether a file begins as a list in JSON, which a line of JSON Lines is not."""
    return _is_list(_head(place))


def _head(place: StoredPath) -> bytes:
    with open_arrow_file(place) as source:
        return source.read(HEAD)


def _is_list(head: bytes) -> bool:
    text = head.decode(errors="ignore")
    return text.startswith("[", first_character(text))
