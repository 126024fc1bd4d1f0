"""Where the cells of a table are in its text, so that a few of them can be written anew."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pyarrow.parquet as pq

from difficulty_service.datasets.text_tables import DelimitedText


def column_name(cell: str) -> str:
    """The name of a column, as it is read."""
    return cell.strip("\ufeff").strip('"').strip()


_BLANKS = re.compile(r'(?: +(?="))?')  # in front of a cell in quotes
_CELL = re.compile(r'"(?:[^"]|"")*"')


def cell_spans(content: DelimitedText) -> Iterator[list[tuple[int, int]]]:
    """Begin and end of every cell, row by row, without lines that are empty."""
    text, delimiter = content.text, content.delimiter
    plain = re.compile(f"[^{re.escape(delimiter)}\r\n]*")
    place = 1 if text.startswith("\ufeff") else 0
    spans: list[tuple[int, int]] = []
    while place < len(text):
        place = _BLANKS.match(text, place).end()  # type: ignore[union-attr]
        start = place
        quoted = _CELL.match(text, place)
        if quoted is not None:
            place = quoted.end()
        rest = plain.match(text, place)
        place = place if rest is None else rest.end()
        spans.append((start, place))
        if text[place : place + 1] == delimiter:
            place += 1
            if place == len(text):
                spans.append((place, place))
            continue
        place = end_of_line(text, place)
        if spans != [(start, start)]:
            yield spans
        spans = []
    if spans:
        yield spans


def end_of_line(text: str, place: int) -> int:
    """The place after the line break at a place."""
    for line_break in ("\r\n", "\n", "\r"):
        if text.startswith(line_break, place):
            return place + len(line_break)
    return place


def unquoted(cell: str) -> str:
    """A cell without the quotes around it."""
    is_quoted = cell.startswith('"') and cell.endswith('"') and len(cell) > 1
    return cell[1:-1].replace('""', '"') if is_quoted else cell


def quoted(cell: str, delimiter: str, *, always: bool) -> str:
    """A cell as it is written, in quotes where it needs them."""
    needs = always or any(each in cell for each in (delimiter, '"', "\n", "\r"))
    return '"' + cell.replace('"', '""') + '"' if needs else cell


_OPEN, _COLON, _COMMA = (re.compile(rf"\s*{each}?\s*") for each in ("{", ":", ","))


def value_spans(line: str) -> dict[str, tuple[Any, int, int]]:
    """Each value of an object in JSON, with its begin and end."""
    decoder = json.JSONDecoder()
    found: dict[str, tuple[Any, int, int]] = {}
    place = _after(_OPEN, line, 0)
    while line[place] != "}":
        key, place = decoder.raw_decode(line, place)
        start = _after(_COLON, line, place)
        value, end = decoder.raw_decode(line, start)
        found[key] = (value, start, end)
        place = _after(_COMMA, line, end)
    return found


def _after(mark: re.Pattern[str], line: str, place: int) -> int:
    """The place behind a mark and the blanks around it."""
    found = mark.match(line, place)
    return place if found is None else found.end()


def codecs_of(metadata: pq.FileMetaData) -> dict[str, str] | str:
    """The compression of each column, by its path inside nested ones."""
    if not metadata.num_row_groups:
        return "zstd"
    columns = map(metadata.row_group(0).column, range(metadata.num_columns))
    return {
        column.path_in_schema: "none"
        if column.compression == "UNCOMPRESSED"
        else column.compression
        for column in columns
    }
