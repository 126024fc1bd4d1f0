"""Tables in the formats that a file's ending names, written a piece at a time.

A writer takes Arrow tables of one schema. CSV and JSON Lines hold no metadata and no types beyond
text and numbers.
"""

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json

from difficulty_service.files.checked_parquet import parquet_writer

WriteTable = Callable[[pa.Table], None]

FORMULA = "^'*[=+\\-@\t\r]"
"""Text that a spreadsheet would run as a formula, behind any number of quotes."""

READ_BYTES = 1 << 24
"""Bytes that are parsed at a time; no row may be longer."""


@contextmanager
def csv_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """Writes a header and a line for each row; text that looks like a formula gets a quote."""
    plain = plain_schema(schema)
    with pa_csv.CSVWriter(path, plain) as writer:
        yield lambda table: writer.write_table(_map_text(table.cast(plain), _add_quote))


@contextmanager
def json_lines_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """Writes an object for each row; a number that is not finite becomes null."""
    plain = plain_schema(schema)
    with path.open("w", encoding="utf-8", newline="\n") as file:

        def write(table: pa.Table) -> None:
            for row in table.cast(plain).to_pylist():
                values = {name: _finite(value) for name, value in row.items()}
                file.write(json.dumps(values, ensure_ascii=False, allow_nan=False) + "\n")

        yield write


WRITERS: Mapping[str, Callable[[Path, pa.Schema], AbstractContextManager[WriteTable]]] = {
    ".parquet": parquet_writer,
    ".csv": csv_writer,
    ".jsonl": json_lines_writer,
}
"""Writers of tables by the ending of the file's name, in lower case."""


def read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    """Reads what `csv_writer` wrote, or a spreadsheet edited.

    Args:
        path: CSV file with a header.
        schema: Types of the columns that are known; the types of others are inferred.
    """
    table = pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(block_size=READ_BYTES),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=plain_schema(schema),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return _map_text(table, _remove_quote)


def read_json_lines(path: Path, schema: pa.Schema) -> pa.Table:
    """Reads what `json_lines_writer` wrote; arguments as for `read_csv`."""
    reading = pa_json.ReadOptions(block_size=READ_BYTES)
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    # Arrow makes a column of every name that it is given, also where no row has it.
    present = pa_json.read_json(io.BytesIO(first), reading).schema.names
    known = [field for field in plain_schema(schema) if field.name in present]
    return pa_json.read_json(
        path,
        read_options=reading,
        parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(known)),
    )


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with text in place of dictionaries, and without metadata."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


def _finite(value: Any) -> Any:  # noqa: ANN401 - a cell of any column
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _map_text(table: pa.Table, change: Callable[[pa.ChunkedArray], pa.ChunkedArray]) -> pa.Table:
    """Changes the columns of text."""
    for index, field in enumerate(table.schema):
        if pa.types.is_string(field.type):
            table = table.set_column(index, field, change(table.column(index)))
    return table


def _add_quote(column: pa.ChunkedArray) -> pa.ChunkedArray:
    quoted = pc.binary_join_element_wise("'", column, "")
    return pc.if_else(pc.match_substring_regex(column, FORMULA), quoted, column)


def _remove_quote(column: pa.ChunkedArray) -> pa.ChunkedArray:
    quoted = pc.and_(pc.starts_with(column, "'"), pc.match_substring_regex(column, FORMULA))
    return pc.if_else(quoted, pc.utf8_slice_codeunits(column, 1), column)
