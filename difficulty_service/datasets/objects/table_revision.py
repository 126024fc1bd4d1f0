"""Writes a table of labels again, in its own format, with other labels or without some rows."""

import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.json_spans import removals, walk_object
from difficulty_service.datasets.json_tables import ENDING, read_json, row_spans
from difficulty_service.datasets.objects.boxes import edited
from difficulty_service.datasets.sample import Content
from difficulty_service.datasets.storage import StoredPath, open_arrow_file
from difficulty_service.datasets.table_text import (
    cell_spans,
    codecs_of,
    column_name,
    end_of_line,
    quoted,
)
from difficulty_service.datasets.text_tables import DELIMITED_EXTENSIONS, read_text

Edits = Mapping[int, str | None]
"""The new label of rows, by their numbers; None takes the row out."""


def revised_table(place: StoredPath, column: str, edits: Edits) -> Content:
    """The content of a table after edits of a column.

    Raises:
        DatasetError: The table is a workbook, or its text has other rows than were read.
    """
    name = place.name.lower()
    if name.endswith(DELIMITED_EXTENSIONS):
        return _revised_text(place, column, edits)
    if name.endswith(".parquet"):
        return partial(_write_parquet, place, column, edits)
    if name.endswith((".jsonl", ".ndjson", ENDING)):
        return _revised_json(place, column, edits)
    raise DatasetError(f"{place.name!r} is a workbook, which is not written", "save it as CSV")


def _revised_text(place: StoredPath, column: str, edits: Edits) -> bytes:
    content = read_text(place, place.name)
    rows = cell_spans(content)
    at = [column_name(content.text[start:end]) for start, end in next(rows)].index(column)
    changes: list[tuple[int, int, str]] = []
    for number, spans in enumerate(rows):
        if number not in edits:
            continue
        label = edits[number]
        if label is None:
            changes.append((spans[0][0], end_of_line(content.text, spans[-1][1]), ""))
        else:
            start, end = spans[at]
            is_quoted = content.text[start : start + 1] == '"'
            changes.append((start, end, quoted(label, content.delimiter, always=is_quoted)))
    return content.encode(edited(content.text, changes))


def _revised_json(place: StoredPath, column: str, edits: Edits) -> bytes:
    text = read_json(place)
    spans = row_spans(text, place.name)
    changes = removals(spans, {number for number, label in edits.items() if label is None})
    for number, label in edits.items():
        if label is not None:
            start, end = walk_object(text, spans[number][0], {})[column]
            new = label if text[start] == '"' else int(label)
            changes.append((start, end, json.dumps(new, ensure_ascii=False)))
    return edited(text, changes).encode()


def _write_parquet(place: StoredPath, column: str, edits: Edits, target: Path) -> None:
    with open_arrow_file(place) as source:
        parquet = pq.ParquetFile(source, pre_buffer=False)
        schema, metadata, first = parquet.schema_arrow, parquet.metadata, 0
        field = schema.field(column)
        is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        with pq.ParquetWriter(target, schema, compression=codecs_of(metadata)) as writer:
            for group in range(metadata.num_row_groups):
                part = parquet.read_row_group(group)
                numbers = range(first, first + len(part))
                cells = part.column(column).to_pylist()
                for row, number in enumerate(numbers):
                    label = edits.get(number)
                    if label is not None:
                        cells[row] = label if is_text else int(label)
                at = part.column_names.index(column)
                part = part.set_column(at, field, pa.array(cells, field.type))
                gone = [edits.get(number, "") is None for number in numbers]
                writer.write_table(part.filter(pa.array([not each for each in gone])))
                first += len(gone)
