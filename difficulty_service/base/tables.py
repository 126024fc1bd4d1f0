"""Columns between NumPy or Python and Arrow, without pandas.

Arrow's own functions, `pa.array` and `to_numpy`, import pandas where it is installed, which can
take longer than scoring a dataset.

Parquet files with a checksum of all their bytes, which other programs read like any other.

Tables in the formats that a file's ending names, written a piece at a time.

A writer takes Arrow tables of one schema. CSV and JSON Lines hold no metadata and no types beyond
text and numbers.

Arrow IPC files with a checksum, mapped into memory; other programs read them like any other.
"""

import io
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.json as pa_json
import pyarrow.parquet as pq
from numpy.typing import NDArray

from difficulty_service.base.checksums import (
    LINE_BYTES,
    PREFIX,
    DamagedFile,
    empty_line,
    fill_in,
    parquet_footer,
    verify_path,
)
from difficulty_service.base.csv_cells import guard_text, unguard_text
from difficulty_service.base.files import replacing
from difficulty_service.base.json_text import ShallowJson


def strings_to_arrow(strings: Sequence[str]) -> pa.StringArray:
    """Strings as a column."""
    encoded = [string.encode() for string in strings]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(encoded), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


def to_arrow(numbers: NDArray[Any]) -> pa.Array:
    """Numbers as a column; NaN becomes null. Shape (rows,)."""
    numbers = np.ascontiguousarray(numbers)
    known = ~np.isnan(numbers)
    validity = None if known.all() else pa.py_buffer(np.packbits(known, bitorder="little"))
    kind = pa.from_numpy_dtype(numbers.dtype)
    return pa.Array.from_buffers(kind, len(numbers), [validity, pa.py_buffer(numbers)])


def to_numpy(column: pa.Array) -> NDArray[Any]:
    """A column of numbers; null becomes NaN, so integer columns must have none.

    Shape (rows,). Without nulls it is the memory of the column itself: it must not be written to.
    """
    if column.null_count:
        nan = pa.py_buffer(np.array([np.nan], column.type.to_pandas_dtype()))
        column = column.fill_null(pa.Array.from_buffers(column.type, 1, [None, nan])[0])
    return np.from_dlpack(column)


def bytes_of(column: pa.FixedSizeBinaryArray) -> NDArray[np.uint8]:
    """Values of equal length as bytes, in the memory of the column: not to be written to.

    Shape (rows, bytes).
    """
    rows = np.frombuffer(column.buffers()[1] or b"", np.uint8).reshape(-1, column.type.byte_width)
    return rows[column.offset : column.offset + len(column)]


def count_positive(column: pa.Array | pa.ChunkedArray) -> int:
    """Number of values above 0, of which missing ones and NaN are none."""
    return pc.sum(pc.greater(column, 0)).as_py() or 0


POSITION_KEY = b"checksum_at"
"""Metadata key: position of the checksum, which tells a file that lost it from a rewritten one."""

UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)
"""Errors that `open_parquet`, reading from it and `map_arrow` raise for damaged files."""


@contextmanager
def parquet_writer(path: Path, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """Writes each table as a row group, with the metadata of the schema, and then the checksum."""
    metadata = {key: value for key, value in (schema.metadata or {}).items() if key != POSITION_KEY}
    schema = schema.with_metadata(metadata or None)
    with (
        pa.OSFile(str(path), "wb") as sink,
        pq.ParquetWriter(sink, schema, compression="zstd") as writer,
    ):
        yield lambda table: writer.write_table(table.replace_schema_metadata(schema.metadata))
        # Room for the checksum between the last row group and the footer.
        position = int(sink.tell())
        writer.add_key_value_metadata({POSITION_KEY.decode(): str(position)})
        sink.write(empty_line())
    fill_in(path, position)


def write_parquet(path: Path, table: pa.Table) -> None:
    """Writes one table, and a checksum."""
    with parquet_writer(path, table.schema) as write:
        write(table)


@contextmanager
def open_parquet(path: Path, **options: Any) -> Iterator[pq.ParquetFile]:  # noqa: ANN401
    """Opens a Parquet file whose checksum matches, or that another program wrote without one.

    Raises:
        DamagedFile: The checksum is lost or does not match.
        UNREADABLE: The file is missing, or is not Parquet.
    """
    # Before Arrow reads the footer: a damaged one can end the process.
    checksum = verify_path(path)
    with pq.ParquetFile(path, **options) as file:
        if checksum is None:
            with path.open("rb") as opened:
                require_checksum(opened, file.metadata)
        yield file


def read_parquet(path: Path, columns: list[str] | None = None, **options: Any) -> pa.Table:  # noqa: ANN401
    """Columns of a Parquet file, or all of them; errors as for `open_parquet`."""
    with open_parquet(path) as file:
        return file.read(columns, **options)


def read_parquet_schema(path: Path) -> pa.Schema:
    """The schema of a Parquet file; errors as for `open_parquet`."""
    with open_parquet(path) as file:
        return file.schema_arrow


def require_checksum(file: BinaryIO, metadata: pq.FileMetaData) -> None:
    """Raises DamagedFile where a file that was written with a checksum has lost it."""
    position = int((metadata.metadata or {}).get(POSITION_KEY, -1))
    # Another program that writes the file again may keep the key, but not at this position.
    if position >= 0 and position + LINE_BYTES == parquet_footer(file):
        file.seek(position)
        if not file.read(len(PREFIX)) == PREFIX:
            raise DamagedFile("its checksum is lost")


WriteTable = Callable[[pa.Table], None]

READ_BYTES = 1 << 24
"""Bytes that are parsed at a time; no row may be longer."""


@contextmanager
def csv_writer(sink: Path | BinaryIO, schema: pa.Schema) -> Iterator[WriteTable]:
    """Writes a header and a line for each row, with cells that no spreadsheet runs."""
    plain = plain_schema(schema)
    with pa_csv.CSVWriter(sink, guard_text(plain.empty_table()).schema) as writer:
        yield lambda table: writer.write_table(guard_text(table.cast(plain)))


@contextmanager
def json_lines_writer(path: Path, schema: pa.Schema) -> Iterator[WriteTable]:
    """Writes an object for each row; a number that is not finite becomes null."""
    plain = plain_schema(schema)
    with path.open("w", encoding="utf-8", newline="\n") as file:

        def write(table: pa.Table) -> None:
            for row in table.cast(plain).to_pylist():
                for name, value in row.items():
                    if isinstance(value, float) and not math.isfinite(value):
                        row[name] = None
                file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")

        yield write


WRITERS: Mapping[str, Callable[[Path, pa.Schema], AbstractContextManager[WriteTable]]] = {
    ".parquet": parquet_writer,
    ".csv": csv_writer,
    ".jsonl": json_lines_writer,
}
"""Writers of tables by the ending of the file's name, in lower case."""


def save_table(path: Path, table: pa.Table, schema: pa.Schema | None = None) -> None:
    """Writes a table in the format of its ending; the file appears whole or not at all.

    Args:
        schema: That of the file; None for that of the table.
    """
    writer = WRITERS[path.suffix.lower()]
    with replacing(path) as temporary, writer(temporary, schema or table.schema) as write:
        write(table)


def read_csv(path: Path, schema: pa.Schema) -> pa.Table:
    """Reads what `csv_writer` wrote, or a spreadsheet edited; other types are inferred."""
    plain = plain_schema(schema)
    table = pa_csv.read_csv(
        path,
        read_options=pa_csv.ReadOptions(block_size=READ_BYTES),
        parse_options=pa_csv.ParseOptions(newlines_in_values=True),
        convert_options=pa_csv.ConvertOptions(
            column_types=guard_text(plain.empty_table()).schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return unguard_text(table)


def read_json_lines(path: Path, schema: pa.Schema) -> pa.Table:
    """Reads what `json_lines_writer` wrote; arguments as for `read_csv`."""
    reading = pa_json.ReadOptions(block_size=READ_BYTES)
    with path.open("rb") as file:
        first = next((line for line in file if line.strip()), b"")
    # Arrow makes a column of every name that it is given, also where no row has it.
    present = pa_json.read_json(ShallowJson(io.BytesIO(first)), reading).schema.names
    known = [field for field in plain_schema(schema) if field.name in present]
    with path.open("rb") as file:
        return pa_json.read_json(
            ShallowJson(file),
            read_options=reading,
            parse_options=pa_json.ParseOptions(explicit_schema=pa.schema(known)),
        )


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The schema with text in place of dictionaries, and without metadata."""
    return pa.schema([field.with_type(_plain_type(field.type)) for field in schema])


def _plain_type(kind: pa.DataType) -> pa.DataType:
    return kind.value_type if pa.types.is_dictionary(kind) else kind


CHECKSUM_KEY = b"checksum"
"""Key of the checksum in the metadata of the footer.

A program that writes the table again keeps the metadata of the schema, but not that of the footer.
"""

END_BYTES = 10
"""An Arrow file ends with the length of its footer, 4 bytes, and the magic number."""


def write_arrow(path: Path, batch: pa.RecordBatch, without: str | None = None) -> None:
    """Writes a record batch without compression, and a checksum.

    It leaves out the numbers of a column of fixed-size lists that has checksums of its own.
    """
    with pa.ipc.new_file(path, batch.schema, metadata={CHECKSUM_KEY: empty_line()}) as writer:
        writer.write_batch(batch)
    with pa.memory_map(str(path)) as source:
        data = source.read_buffer()
    end = data.size - END_BYTES
    begin = end - int.from_bytes(data[end : end + 4].to_pybytes(), "little")
    numbers = range(0)
    if without is not None and len(batch):
        written = pa.ipc.open_file(pa.BufferReader(data)).get_batch(0)
        buffer = written[without].flatten().buffers()[-1]
        numbers = range(buffer.address - data.address, buffer.address - data.address + buffer.size)
    fill_in(path, begin + data[begin:end].to_pybytes().index(empty_line()), numbers)


def map_arrow(path: Path) -> tuple[pa.RecordBatch, bool]:
    """Maps a file whose checksum matches, or that another program wrote without one.

    Returns:
        The rows of the file, on mapped memory, which must not be written to, as far as they are one
        batch without compression; and whether the file has a checksum.

    Raises:
        DamagedFile: The checksum is lost or does not match.
        UNREADABLE: The file is missing, or is not an Arrow IPC file.
    """
    checksum = verify_path(path)
    with pa.memory_map(str(path)) as source:
        reader = pa.ipc.open_file(source)
        batches = [reader.get_batch(number) for number in range(reader.num_record_batches)]
    if len(batches) != 1:
        empty = pa.RecordBatch.from_pylist([], schema=reader.schema)
        batches = [pa.concat_batches([empty, *batches])]
    if checksum is None:
        if CHECKSUM_KEY in (reader.metadata or {}):
            raise DamagedFile("its checksum is lost")
        batches[0].validate(full=True)
    return batches[0], checksum is not None
