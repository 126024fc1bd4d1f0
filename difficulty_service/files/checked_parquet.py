"""Parquet files with a checksum of all their bytes, which other programs read like any other."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.files.checksum import (
    LINE_BYTES,
    PREFIX,
    DamagedFile,
    empty_line,
    fill_in,
    parquet_footer,
    verify_path,
)

POSITION_KEY = b"checksum_at"
"""Metadata key: position of the checksum, which tells a file that lost it from a rewritten one."""

UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)
"""Errors that `open_parquet` and reading from it raise for damaged files."""


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

    Args:
        path: Parquet file.
        options: Arguments of `pyarrow.parquet.ParquetFile`.

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
