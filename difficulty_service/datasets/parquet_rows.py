"""Rows of Parquet files in batches that fit in memory, whatever their pages unpack to.

Sizes of the pages of a Parquet file, from the headers before them, before any is decoded.

A file of two kilobytes can hold a page of gigabytes, and its footer may claim anything. The headers
are what a reader allocates memory by. They are structs in Thrift's compact protocol.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.base.errors import DatasetError, Setting

MAX_RATIO = 200
"""How much a large page may unpack to; photographs hardly shrink, repeated labels do."""

LARGE_PAGE = 16 << 20  # bytes

_HEADER_SIZES = (256, 1 << 14, 1 << 24)  # statistics may make a header long
_STORED, _UNPACKED = 3, 2  # numbers of fields in parquet.thrift
_BOOLEANS, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _STRUCT = (1, 2), 3, (4, 5, 6), 7, 8, 12
_MAX_DEPTH = 4


@dataclass(frozen=True)
class Page:
    """A page of a column.

    Attributes:
        unpacked: Number of bytes in memory.
        stored: Number of bytes in the file, without the header.
    """

    unpacked: int
    stored: int


def read_pages(source: pa.NativeFile, column: pq.ColumnChunkMetaData) -> Iterator[Page]:
    """The pages of a column in a row group; the dictionary is the first one.

    Raises:
        DatasetError: A header is damaged, or a page unpacks to far more than images do.
    """
    starts = (column.dictionary_page_offset, column.data_page_offset)
    position = min(start for start in starts if start is not None and start > 0)
    end = min(position + column.total_compressed_size, source.size())
    while position < end:
        header, length = _read_header(source, position, end)
        page = Page(header.get(_UNPACKED, -1), header.get(_STORED, -1))
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
    """Reads structs in Thrift's compact protocol.

    Args:
        data: Bytes that begin with a struct; an IndexError tells that they end too early.
    """

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

    Args:
        source: File to read the headers of pages from.
        parquet: The same file.
        group: Index of the row group.
        columns: Names of columns, or paths of their fields.
        max_rows: Maximum number of rows of a batch.

    Raises:
        DatasetError: A page is damaged or unpacks to far more than images do.
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


def read_texts(source: pa.NativeFile, columns: list[str], max_bytes: int) -> pa.Table:
    """All rows of some columns, whose bytes are counted as they are decoded.

    Raises:
        DatasetError: They have more than `max_bytes` bytes.
    """
    parquet = pq.ParquetFile(source, pre_buffer=False)
    batches: list[pa.RecordBatch] = []
    num_bytes = 0
    for group in range(parquet.metadata.num_row_groups):
        for batch in read_group(source, parquet, group, columns, _TEXT_ROWS):
            num_bytes += batch.nbytes
            if num_bytes > max_bytes:
                raise DatasetError(
                    f"labels and ids have more than {max_bytes:,} bytes in memory",
                    "shorten them, or raise ",
                    Setting("max_text_bytes"),
                )
            batches.append(batch)
    if not batches:
        return parquet.read(columns=columns)
    return pa.Table.from_batches(batches)
