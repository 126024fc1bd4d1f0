"""Reads files of tables: whole columns, or the cells of some rows without loading the others.

CSV, JSON and workbooks are read whole, because they hold paths or small images. Parquet is
read by row groups, in batches that fit in memory, whatever their pages unpack to: a file of two
kilobytes can hold a page of gigabytes, and its footer may claim anything. The headers before the
pages, by which a reader allocates memory, are checked first. They are structs in Thrift's compact
protocol.
"""

import struct
from collections.abc import Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.annotation_lines import with_labels
from difficulty_service.datasets.file_search import (
    SplitFiles,
    files_of_split,
    find_files_ending,
)
from difficulty_service.datasets.json_tables import ENDING as JSON
from difficulty_service.datasets.json_tables import MOST_LIMITED
from difficulty_service.datasets.sample import TableLimits
from difficulty_service.datasets.spreadsheets import SPREADSHEET_EXTENSIONS, read_spreadsheet
from difficulty_service.datasets.storage import (
    READ_AHEAD,
    Boundary,
    StoredFile,
    StoredPath,
    is_folder,
    open_arrow_file,
    resolve,
)
from difficulty_service.datasets.text_tables import decode_names, read_text_table

MAX_RATIO = 200
"""How much a large page may unpack to; photographs hardly shrink, repeated labels do."""

LARGE_PAGE = 16 << 20  # bytes

_HEADER_SIZES = (256, 1 << 14, 1 << 24)  # statistics may make a header long
_STORED, _UNPACKED = 3, 2  # numbers of fields in parquet.thrift
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_MAX_DEPTH = 4


@dataclass(frozen=True)
class ParquetPage:
    """Bytes of a page of a column: in memory, and in the file without the header."""

    unpacked: int
    stored: int


def read_pages(source: pa.NativeFile, column: pq.ColumnChunkMetaData) -> Iterator[ParquetPage]:
    """The pages of a column in a row group; the dictionary is the first one."""
    starts = (column.dictionary_page_offset, column.data_page_offset)
    position = min(start for start in starts if start is not None and start > 0)
    end = min(position + column.total_compressed_size, source.size())
    while position < end:
        header, length = _read_header(source, position, end)
        page = ParquetPage(header.get(_UNPACKED, -1), header.get(_STORED, -1))
        position += length + page.stored
        if min(page.unpacked, page.stored) < 0 or position > end:
            raise DatasetError(
                f"a page of the column {column.path_in_schema!r} is damaged", "write it again"
            )
        if page.unpacked > max(LARGE_PAGE, MAX_RATIO * page.stored):
            raise DatasetError(
                f"a page of the column {column.path_in_schema!r} has {page.stored:,} bytes that "
                f"unpack to {page.unpacked:,}",
                f"the maximum is {MAX_RATIO} times as many",
            )
        yield page


def _read_header(source: pa.NativeFile, position: int, end: int) -> tuple[dict[int, int], int]:
    """The integers of a header by the numbers of their fields, and its length in bytes."""
    for size in _HEADER_SIZES:
        data = source.read_at(min(size, end - position), position)
        reader = _CompactReader(data)
        try:
            return reader.read_struct(), reader.position
        except (IndexError, struct.error):
            if len(data) < size:
                break
    raise DatasetError("the header of a page is damaged", "write the file again")


class _CompactReader:
    """Reads structs in Thrift's compact protocol; IndexError tells that the bytes end early."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.position = 0

    def read_struct(self, depth: int = 0) -> dict[int, int]:
        """The integers of a struct by the numbers of their fields; other values are skipped."""
        values: dict[int, int] = {}
        number = 0
        while (head := self._read_byte()) != 0:
            kind = head & 15
            number = number + (head >> 4) if head >> 4 else self._read_integer()
            if kind in _INTEGERS:
                values[number] = self._read_integer()
            else:
                self._skip(kind, depth)
        return values

    def _skip(self, kind: int, depth: int) -> None:
        if kind == _STRUCT and depth < _MAX_DEPTH:
            self.read_struct(depth + 1)
        elif kind == _BINARY:
            self._advance(self._read_varint())
        elif kind in (_BYTE, _DOUBLE):
            self._advance(1 if kind == _BYTE else 8)
        elif kind not in _BOOLEANS:
            raise DatasetError("the header of a page is damaged", "write the file again")

    def _advance(self, number: int) -> None:
        self.position += number
        if self.position > len(self._data):
            raise IndexError

    def _read_byte(self) -> int:
        value = self._data[self.position]
        self.position += 1
        return value

    def _read_varint(self) -> int:
        value = shift = 0
        while True:
            byte = self._read_byte()
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128 or shift > 63:  # noqa: PLR2004 - the last byte has no continuation bit
                return value

    def _read_integer(self) -> int:
        value = self._read_varint()
        return (value >> 1) ^ -(value & 1)


BATCH_BYTES = 32 << 20
_TEXT_ROWS = 1 << 16


def read_group(
    source: pa.NativeFile, parquet: pq.ParquetFile, group: int, columns: list[str], max_rows: int
) -> Iterator[pa.RecordBatch]:
    """Some columns of a row group, in batches.

    A value is at most as large as the largest page, because many rows may repeat one value of a
    dictionary.
    """
    # A remote file would be asked once for each page, so only its first ones, dictionaries, count.
    num_pages = None if isinstance(source, pa.PythonFile | pa.OSFile) else 1
    metadata = parquet.metadata.row_group(group)
    largest = sum(
        max((page.unpacked for page in islice(read_pages(source, each), num_pages)), default=0)
        for each in map(metadata.column, range(metadata.num_columns))
        if is_part(each.path_in_schema, columns)
    )
    rows = min(max(BATCH_BYTES // max(largest, 1), 1), max_rows)
    return iter(parquet.iter_batches(rows, row_groups=[group], columns=columns))


def is_part(path: str, columns: Sequence[str]) -> bool:
    """Whether a path of a field is one of the columns, or below one."""
    return any(path == name or path.startswith(f"{name}.") for name in columns)


def read_texts(source: pa.NativeFile, columns: list[str], limits: TableLimits) -> pa.Table:
    """All rows of some columns; the limit of their bytes is for these as they are decoded."""
    parquet = pq.ParquetFile(source, pre_buffer=False)
    batches: list[pa.RecordBatch] = []
    num_bytes = 0
    for group in range(parquet.metadata.num_row_groups):
        for batch in read_group(source, parquet, group, columns, _TEXT_ROWS):
            num_bytes += batch.nbytes
            require_size(num_bytes, limits)
            batches.append(batch)
    if not batches:
        return parquet.read(columns=columns)
    return pa.Table.from_batches(batches)


def require_rows(num_rows: int, limits: TableLimits, title: str) -> None:
    """Raises DatasetError where a table has more rows than allowed; `title` is what it is called.

    The number is known from the index of each file alone, which costs nothing to read.
    """
    if num_rows > limits.max_rows:
        raise DatasetError(
            f"{title} has {num_rows:,} rows, the maximum is {limits.max_rows:,}",
            "split it, or raise ",
            Setting("max_rows"),
        )


def require_size(num_bytes: int, limits: TableLimits) -> None:
    """Raises DatasetError where the columns of a table have more bytes in memory than allowed."""
    if num_bytes > limits.max_text_bytes:
        raise DatasetError(
            f"the columns that are read have more than {limits.max_text_bytes:,} bytes in memory",
            "shorten them, or raise ",
            Setting("max_text_bytes"),
        )


TABLE_EXTENSIONS = (".parquet", ".csv", ".tsv", ".jsonl", ".ndjson", *SPREADSHEET_EXTENSIONS)

LIMITED_EXTENSIONS = tuple(each for each in TABLE_EXTENSIONS if each not in SPREADSHEET_EXTENSIONS)
"""Extensions of tables that are read with limits, as a service does."""

NAMED_EXTENSIONS = (*TABLE_EXTENSIONS, ".txt", ".manifest", JSON)
"""Extensions of tables that are named; in a folder, the last three may be anything."""

_JSON_EXTENSIONS = (".jsonl", ".ndjson", ".manifest", JSON)

_ROWS_PER_BATCH = 64

_EVEN = (
    "write the names of the columns into the first line, and as many cells into each other line, "
    "in quotes, without a blank before these, where what is between columns is part of them"
)


def find_tables(
    location: str, split: str | None = None, boundary: Boundary | None = None
) -> SplitFiles:
    """The tables of a split at a location, which is a file, a glob or a folder; there must be one.

    Raises:
        DatasetError: There is none, or they are of several splits and none is chosen.
    """
    files = find_all_tables(location, boundary)
    return files_of_split(files, split, location, inside=True)


def find_all_tables(location: str, boundary: Boundary | None = None) -> list[StoredFile]:
    """The tables at a location, whatever their splits; there must be one."""
    return find_files_ending(location, boundary, table_endings(location, boundary), "table")


def table_endings(location: str, boundary: Boundary | None = None) -> tuple[str, ...]:
    """The extensions of the tables at a location."""
    in_folder = is_folder(resolve(location, boundary), location)
    return TABLE_EXTENSIONS if in_folder else NAMED_EXTENSIONS


@dataclass(frozen=True)
class TableFile:
    """One file of a table.

    Attributes:
        name: Path relative to the common folder of all files; the start of the ids.
        rows: Rows of a file that is read whole; None for Parquet.
        limits: Limits for Parquet; None for a file that its owner reads.
        note: What was assumed to read it, as the predicate of a sentence; None for nothing.
    """

    file: StoredFile
    name: str
    schema: pa.Schema
    num_rows: int
    rows: pa.Table | None
    limits: TableLimits | None = None
    note: str | None = None

    @property
    def is_json(self) -> bool:
        """Whether the file is JSON, in which bytes are base64 text."""
        return self.name.lower().endswith(_JSON_EXTENSIONS)


def open_table_file(
    file: StoredFile,
    name: str,
    text_columns: Container[str],
    *,
    multiline: bool = False,
    limits: TableLimits | None = None,
) -> TableFile:
    """Reads the schema of a Parquet file, or all rows of any other.

    Quoted cells of a CSV file may have line breaks if it is `multiline`, as texts have. Its
    `text_columns` are read as text even if they look like numbers. With limits, files that unpack
    to any size as they are read are refused.
    """
    kind = name.lower()
    if limits is not None and kind.endswith(SPREADSHEET_EXTENSIONS):
        raise DatasetError.of_location(
            f"{name!r} is a workbook, which may unpack to any size, so only the command line and "
            "Python read it",
            "save the sheet as CSV",
        )
    if limits is not None and kind.endswith(JSON) and file.size > MOST_LIMITED:
        raise DatasetError.of_location(
            f"{name!r} has more than {MOST_LIMITED:,} bytes", "write it as JSON Lines"
        )
    try:
        if kind.endswith(".parquet"):
            with open_arrow_file(file.place) as source:
                parquet = pq.ParquetFile(source)
                schema, rows = parquet.schema_arrow, parquet.metadata.num_rows
                decode_names(schema)
                return TableFile(file, name, schema, rows, None, limits)
        if kind.endswith(SPREADSHEET_EXTENSIONS):
            table, note = read_spreadsheet(file.place, name, text_columns)
        else:
            table, note = read_text_table(file.place, name, text_columns, multiline=multiline)
            if kind.endswith(_JSON_EXTENSIONS):
                table, note = with_labels(table, name)
    except (OSError, pa.ArrowException, UnicodeError) as error:
        is_uneven = isinstance(error, pa.ArrowInvalid) and "columns, got" in str(error)
        raise DatasetError(
            f"{file.place.path!r} cannot be read as a table: {error}", _EVEN if is_uneven else ""
        ) from cause_in_storage(file.place, error)
    _refuse_invalid(table, name)
    return TableFile(file, name, table.schema, table.num_rows, table, limits, note)


def cause_in_storage(place: StoredPath, error: Exception) -> Exception | None:
    """The error, unless it is pyarrow's for what a local file contains, which never passes.

    It raises an OSError for damaged pages, too, as for storage that fails; only the latter has the
    system's number. What a remote storage raises cannot be told apart.
    """
    is_content = place.is_local and isinstance(error, OSError) and error.errno is None
    return None if is_content else error


def require_columns(table: TableFile, columns: list[str]) -> None:
    """Raises DatasetError with the first of the columns that a file lacks."""
    missing = [name for name in columns if name not in table.schema.names]
    if missing:
        raise DatasetError(
            f"no column {missing[0]!r} in {table.name!r}, which has {table.schema.names}",
            "all files of a dataset need the same columns",
        )


def read_columns(table: TableFile, columns: list[str]) -> pa.Table:
    """Reads all rows of some columns."""
    require_columns(table, columns)
    if table.rows is not None:
        return table.rows.select(columns)
    return _read_parquet(table, columns)


@contextmanager
def _opened(place: StoredPath) -> Iterator[pa.NativeFile]:
    """A Parquet file to read from; what fails within the context names it as damaged."""
    try:
        with open_arrow_file(place) as source:
            yield source
    except (OSError, pa.ArrowException, ValueError) as error:
        raise DatasetError(f"{place.path!r} is damaged: {error}") from cause_in_storage(
            place, error
        )


def _read_parquet(table: TableFile, columns: list[str]) -> pa.Table:
    with _opened(table.file.place) as source:
        if table.limits is None:
            texts = pq.ParquetFile(source).read(columns=columns)
        else:
            texts = read_texts(source, columns, table.limits)
    _refuse_invalid(texts, table.name)
    return texts


def _refuse_invalid(texts: pa.Table, source: str) -> None:
    """Refuses text that is not UTF-8, which no reader of Parquet or JSON has checked."""
    for name, column in zip(texts.column_names, texts.columns, strict=True):
        try:
            column.validate(full=True)
        except pa.ArrowException as error:
            raise DatasetError(
                f"the column {name!r} of {source!r} has a value that is not valid: {error}",
                "write text as UTF-8",
            ) from error


def read_paths(table: TableFile, column: str) -> pa.ChunkedArray:
    """Reads a column of paths, or only the paths of structs `{bytes, path}`, as text or null."""
    is_struct = pa.types.is_struct(table.schema.field(column).type)
    if is_struct and table.rows is None:
        # Parquet stores each field of a struct by itself, so the bytes are not read.
        cells = _read_parquet(table, [f"{column}.path"]).column(column)
    else:
        cells = read_columns(table, [column]).column(column)
    return (pc.struct_field(cells, "path") if is_struct else cells).cast(pa.large_string())


def read_cells(table: TableFile, column: str, rows: NDArray[np.int64]) -> Iterator[object]:
    """Yields the cells of a column at ascending rows, with only a few in memory at a time."""
    if table.rows is not None:
        cells = table.rows.column(column)
        for start in range(0, len(rows), _ROWS_PER_BATCH):
            yield from cells.take(pa.array(rows[start : start + _ROWS_PER_BATCH])).to_pylist()
        return
    with _opened(table.file.place) as source:
        yield from _parquet_cells(source, column, rows)


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
