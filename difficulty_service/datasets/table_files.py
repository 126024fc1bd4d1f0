"""Reads files of tables: whole columns, or the cells of some rows without loading the others.

Parquet is read by row groups. CSV and JSON Lines are read whole, because they hold paths or small
images.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.parquet_rows import read_group, read_texts
from difficulty_service.datasets.sample import TableLimits
from difficulty_service.datasets.storage import READ_AHEAD, StoredFile, open_arrow_file

TABLE_EXTENSIONS = (".parquet", ".csv", ".jsonl", ".ndjson")

_ROWS_PER_BATCH = 64
_BLOCK = 64 << 20  # maximum length of a line, or of a row with line breaks


@dataclass(frozen=True)
class TableFile:
    """One file of a table.

    Attributes:
        file: Path and size of the file.
        name: Path relative to the common folder of all files; the start of the ids.
        schema: Schema of the file.
        num_rows: Number of rows.
        rows: Rows of a CSV or JSON Lines file; None for Parquet.
        limits: Limits for Parquet; None for a file that its owner reads.
    """

    file: StoredFile
    name: str
    schema: pa.Schema
    num_rows: int
    rows: pa.Table | None
    limits: TableLimits | None = None

    @property
    def is_json(self) -> bool:
        """Whether the file is JSON, in which bytes are base64 text."""
        return self.name.lower().endswith((".jsonl", ".ndjson"))


def open_table_file(
    file: StoredFile, name: str, text_columns: tuple[str, ...], *, multiline: bool = False
) -> TableFile:
    """Reads the schema of a Parquet file, or all rows of a CSV or JSON Lines file.

    Args:
        file: Path and size of the file.
        name: Name of the file in ids and messages.
        text_columns: Columns of a CSV file that are read as text even if they look like numbers.
        multiline: Whether quoted cells of a CSV file may have line breaks, as texts have.

    Raises:
        DatasetError: The file cannot be read.
    """
    try:
        with open_arrow_file(file.place) as source:
            if name.lower().endswith(".parquet"):
                parquet = pq.ParquetFile(source)
                schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
                _decode_names(schema)
                return TableFile(file, name, schema, rows, None)
            table = _read_text(source, name, text_columns, multiline=multiline)
            _decode_names(table.schema)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        raise DatasetError(f"{file.place.path!r} cannot be read as a table: {error}") from error
    _refuse_invalid(table, name)
    return TableFile(file, name, table.schema, table.num_rows, table)


def _decode_names(fields: Iterable[pa.Field]) -> None:
    """Raises UnicodeDecodeError where the name of a column, or inside one, is not UTF-8."""
    for field in fields:
        field.name  # noqa: B018 - decodes it
        if pa.types.is_nested(field.type):
            _decode_names(field.type.field(index) for index in range(field.type.num_fields))


def _read_text(
    source: pa.NativeFile, name: str, text_columns: tuple[str, ...], *, multiline: bool
) -> pa.Table:
    if not name.lower().endswith(".csv"):
        options = pyarrow.json.ReadOptions(block_size=_BLOCK)
        return pyarrow.json.read_json(source, read_options=options)
    # Only an empty cell is null, because a class may be called "NA" or "null".
    convert = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(text_columns, pa.string()),
        null_values=[""],
        strings_can_be_null=True,
    )
    # Only where texts are expected: an open quote elsewhere would swallow the rows below it.
    parse = pyarrow.csv.ParseOptions(newlines_in_values=multiline)
    read = pyarrow.csv.ReadOptions(block_size=_BLOCK if multiline else None)
    return pyarrow.csv.read_csv(source, read, parse, convert)


def read_columns(table: TableFile, columns: list[str]) -> pa.Table:
    """Reads all rows of some columns.

    Raises:
        DatasetError: A column is missing, or the file is damaged.
    """
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise DatasetError(
            f"no column {missing[0]!r} in {table.name!r}, which has {table.schema.names}",
            "all files of a dataset need the same columns",
        )
    if table.rows is not None:
        return table.rows.select(columns)
    return _read_parquet(table, columns)


def _read_parquet(table: TableFile, columns: list[str]) -> pa.Table:
    try:
        with open_arrow_file(table.file.place) as source:
            if table.limits is None:
                texts = pq.ParquetFile(source).read(columns=columns)
            else:
                texts = read_texts(source, columns, table.limits.max_text_bytes)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DatasetError(f"{table.file.place.path!r} is damaged: {error}") from error
    _refuse_invalid(texts, table.name)
    return texts


def _refuse_invalid(texts: pa.Table, source: str) -> None:
    """Refuses text that is not UTF-8, which no reader of Parquet or JSON has checked.

    Raises:
        DatasetError: A value of a column is not valid.
    """
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise DatasetError(
                f"the column {name!r} of {source!r} has a value that is not valid: {error}",
                "write text as UTF-8",
            ) from error


def read_paths(table: TableFile, column: str) -> pa.ChunkedArray:
    """Reads a column of paths, or only the paths of a column of structs `{bytes, path}`.

    Returns:
        Text, null where there is no path. Shape (rows,).

    Raises:
        DatasetError: The file is damaged.
    """
    is_struct = pa.types.is_struct(table.schema.field(column).type)
    if is_struct and table.rows is None:
        # Parquet stores each field of a struct by itself, so the bytes are not read.
        cells = _read_parquet(table, [f"{column}.path"]).column(column)
    else:
        cells = read_columns(table, [column]).column(column)
    return (pc.struct_field(cells, "path") if is_struct else cells).cast(pa.large_string())


def read_cells(table: TableFile, column: str, rows: NDArray[np.int64]) -> Iterator[object]:
    """Yields the cells of a column at ascending rows, with only a few in memory at a time.

    Raises:
        DatasetError: The file is damaged.
    """
    if table.rows is not None:
        cells = table.rows.column(column)
        for start in range(0, len(rows), _ROWS_PER_BATCH):
            yield from cells.take(pa.array(rows[start : start + _ROWS_PER_BATCH])).to_pylist()
        return
    try:
        with open_arrow_file(table.file.place) as source:
            yield from _parquet_cells(source, column, rows)
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DatasetError(f"{table.file.place.path!r} is damaged: {error}") from error


def _parquet_cells(source: pa.NativeFile, column: str, rows: NDArray[np.int64]) -> Iterator[object]:
    # By default pyarrow would load the column of a whole row group into memory.
    parquet = pq.ParquetFile(source, pre_buffer=False, buffer_size=READ_AHEAD)
    metadata = parquet.metadata
    lengths = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    ends = np.cumsum(lengths, dtype=np.int64)
    for group in np.unique(np.searchsorted(ends, rows, side="right")).tolist():
        start = int(ends[group]) - lengths[group]
        first, last = np.searchsorted(rows, [start, int(ends[group])])
        batches = read_group(source, parquet, group, [column], _ROWS_PER_BATCH)
        yield from _cells_of_batches(batches, rows[first:last] - start)


def _cells_of_batches(
    batches: Iterator[pa.RecordBatch], rows: NDArray[np.int64]
) -> Iterator[object]:
    start = 0
    previous: object = None
    for batch in batches:
        first, last = np.searchsorted(rows, [start, start + len(batch)])
        column = batch.column(0)
        # One by one: all as Python objects at once would take the memory of the batch again.
        for row in (rows[first:last] - start).tolist():
            cell = column[row].as_py()
            # Rows that repeat an image share its bytes, as they do in the file.
            previous = previous if cell == previous else cell
            yield previous
        start += len(batch)
        if last == len(rows):
            return
