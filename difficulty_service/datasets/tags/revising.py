"""Writes a table of tags again, in its own format, with other tags in a few cells.

What nobody decided about stays as it is: a table of text byte for byte, Parquet value by value.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.json_spans import removals
from difficulty_service.datasets.json_tables import read_json, row_spans
from difficulty_service.datasets.objects.boxes import edited
from difficulty_service.datasets.sample import Content
from difficulty_service.datasets.storage import open_arrow_file
from difficulty_service.datasets.table_text import (
    cell_spans,
    codecs_of,
    column_name,
    end_of_line,
    quoted,
    unquoted,
    value_spans,
)
from difficulty_service.datasets.tags.coco import revised_coco
from difficulty_service.datasets.tags.table import NO, YES, TagTable
from difficulty_service.datasets.text_tables import DELIMITED_EXTENSIONS, read_text

RowEdit = Mapping[str, bool] | None
"""Whether a row has some tags from now on, by their names; None takes the row out."""

Edits = Mapping[int, RowEdit]
"""Of each row that changes, by its number."""

Edit = tuple[int, int, str]


def revised(table: TagTable, separator: str, edits: Edits) -> Content:
    """The content of a table after edits."""
    name = table.file.name.lower()
    if table.images is not None:
        made = [(row, tag, has) for row, edit in edits.items() for tag, has in (edit or {}).items()]
        gone = [row for row, edit in edits.items() if edit is None]
        return revised_coco(table.file.file.place, made, gone)
    if name.endswith(DELIMITED_EXTENSIONS):
        return _revised_text(table, separator, edits)
    if name.endswith(".parquet"):
        return partial(_write_parquet, table, separator, edits)
    return _revised_json(table, separator, edits)


def with_tags(cell: list[Any], edit: Mapping[str, bool], make: Callable[[str], Any]) -> list[Any]:
    """The tags of a row after an edit: what stays in its order, then what is new."""
    texts = [str(each).strip() for each in cell]
    kept = [each for each, text in zip(cell, texts, strict=True) if edit.get(text, True)]
    return kept + [make(tag) for tag, has in edit.items() if has and tag not in texts]


def with_text(cell: str | None, edit: Mapping[str, bool], separator: str) -> str:
    """The same of a text with a separator, which keeps its blanks."""
    parts = [part for part in (cell or "").split(separator) if part.strip()]
    return separator.join(with_tags(parts, edit, str))


def _revised_text(table: TagTable, separator: str, edits: Edits) -> bytes:
    """CSV and its like, in which only the edited cells are written anew."""
    content = read_text(table.file.file.place, table.file.name)
    rows = cell_spans(content)
    header = [column_name(content.text[start:end]) for start, end in next(rows)]
    places = {name: header.index(name) for name in table.columns}
    changes: list[Edit] = []
    number = -1
    for number, spans in enumerate(rows):
        if number not in edits:
            continue
        edit = edits[number]
        if edit is None:
            end = end_of_line(content.text, spans[-1][1])
            changes.append((spans[0][0], end, ""))
            continue
        for name in table.columns if not table.one_hot else edit:
            start, end = spans[places[name]]
            cell = unquoted(content.text[start:end])
            if table.one_hot:
                new = _other(cell, has=edit[name])
            else:
                new = with_text(cell, edit, separator)
            if new != cell:
                is_quoted = content.text[start : start + 1] == '"'
                changes.append((start, end, quoted(new, content.delimiter, always=is_quoted)))
    if number + 1 != table.file.num_rows:
        raise DatasetError(
            f"{table.file.name!r} has {number + 1:,} rows as text and {table.file.num_rows:,} as a "
            "table",
            "take line breaks out of its cells",
        )
    return content.encode(edited(content.text, changes))


_OTHERS = {"1": "0", "1.0": "0.0", "true": "false", "yes": "no"}


def _other(cell: str, *, has: bool) -> str:
    """A cell of a one-hot column in the same spelling, or with the other meaning."""
    text = cell.strip()
    small = text.lower()
    if small in (YES if has else NO):
        return cell
    opposite = (_OTHERS | {value: key for key, value in _OTHERS.items()})[small]
    if text.isupper():
        opposite = opposite.upper()
    elif text[:1].isupper():
        opposite = opposite.capitalize()
    return cell.replace(text, opposite)


def _revised_json(table: TagTable, separator: str, edits: Edits) -> bytes:
    """JSON, in which only the edited values are written anew."""
    place = table.file.file.place
    text = read_json(place)
    spans = row_spans(text, place.name)
    changes = removals(spans, {number for number, edit in edits.items() if edit is None})
    for number, edit in edits.items():
        if edit:
            start, end = spans[number]
            changes.append((start, end, _revised_row(text[start:end], table, separator, edit)))
    return edited(text, changes).encode()


def _revised_row(row: str, table: TagTable, separator: str, edit: Mapping[str, bool]) -> str:
    values = value_spans(row)
    if table.one_hot:
        changed = {name: _one_hot_value(values[name][0], has=has) for name, has in edit.items()}
    else:
        name = table.columns[0]
        changed = {name: _with_value(values.get(name, (None, 0, 0))[0], table, separator, edit)}
        if name not in values:  # a row without the key has no tag yet
            place = row.index("{") + 1
            comma = ", " if values else ""
            text = f"{json.dumps(name)}: {json.dumps(changed[name], ensure_ascii=False)}{comma}"
            return row[:place] + text + row[place:]
    return edited(
        row,
        [
            (values[name][1], values[name][2], json.dumps(value, ensure_ascii=False))
            for name, value in changed.items()
            if value != values[name][0] or type(value) is not type(values[name][0])
        ],
    )


def _with_value(value: Any, table: TagTable, separator: str, edit: Mapping[str, bool]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return with_text(value, edit, separator)
    kind = table.file.schema.field(table.columns[0]).type
    if value is None and not pa.types.is_list(kind):
        return with_text(None, edit, separator)
    return with_tags(value or [], edit, _maker(kind))


def _maker(kind: pa.DataType) -> Callable[[str], Any]:
    return int if pa.types.is_integer(kind.value_type) else str


def _one_hot_value(value: Any, *, has: bool) -> Any:  # noqa: ANN401 - any JSON, and any of Arrow
    if isinstance(value, str):
        return _other(value, has=has)
    return type(value)(has)


def _with_list(
    cell: list[Any], edit: Mapping[str, bool], declared: Sequence[str], kind: pa.DataType
) -> list[Any]:
    """The tags of a row of Parquet after an edit, where numbers may have declared names."""
    if not declared:
        return with_tags(cell, edit, _maker(kind))
    named = [declared[each] if 0 <= each < len(declared) else str(each) for each in cell]
    edited_names = with_tags(named, edit, str)
    number = dict(zip(named, cell, strict=True))
    return [number[name] if name in number else declared.index(name) for name in edited_names]


def _write_parquet(table: TagTable, separator: str, edits: Edits, target: Path) -> None:
    """Parquet, a row group at a time, with the schema and the compression of the table."""
    with open_arrow_file(table.file.file.place) as source:
        parquet = pq.ParquetFile(source, pre_buffer=False)
        schema = parquet.schema_arrow
        metadata = parquet.metadata
        first = 0
        with pq.ParquetWriter(target, schema, compression=codecs_of(metadata)) as writer:
            for group in range(metadata.num_row_groups):
                part = parquet.read_row_group(group)
                here = {
                    row - first: edit
                    for row, edit in edits.items()
                    if first <= row < first + len(part)
                }
                first += len(part)
                writer.write_table(_revised_part(part, table, separator, here), len(part) or None)


def _revised_part(part: pa.Table, table: TagTable, separator: str, edits: Edits) -> pa.Table:
    if not edits:
        return part
    for name in table.columns:
        place = part.column_names.index(name)
        field = part.schema.field(place)
        cells = part.column(name).to_pylist()
        for row, edit in edits.items():
            if edit is None or (table.one_hot and name not in edit):
                continue
            if table.one_hot:
                cells[row] = _one_hot_value(cells[row], has=edit[name])
            elif pa.types.is_list(field.type) or pa.types.is_large_list(field.type):
                cells[row] = _with_list(cells[row] or [], edit, table.declared, field.type)
            else:
                cells[row] = with_text(cells[row], edit, separator)
        part = part.set_column(place, field, pa.array(cells, field.type))
    gone = {row for row, edit in edits.items() if edit is None}
    return part.filter(pa.array([row not in gone for row in range(len(part))])) if gone else part
