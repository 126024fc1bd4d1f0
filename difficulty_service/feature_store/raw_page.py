"""Features read from a Parquet file as the bytes they are, without decoding them.

Arrow decodes a list column number by number, which takes longer than fitting Gaussians to it.
Therefore a part holds its features on one page, in the layout of memory, and its metadata says at
which byte of the file they begin. To any other reader it is an ordinary Parquet file, and files of
other writers are decoded by Arrow.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor

from difficulty_service.feature_store.page_blocks import Page, PageBlocks
from difficulty_service.files.checked_parquet import reserve_checksum, verified_parquet
from difficulty_service.files.checksum import Checksum, fill_in

COLUMN = "features"
PREFIX_KEY = b"features_prefix"
"""Metadata key: position of the features in the file, in bytes."""

BLOCKS_KEY = b"features_blocks"
"""Metadata key: checksums of the features, as `PageBlocks.to_text`."""

LARGEST_PAGE = 1 << 30
FLOAT_BYTES = 4


def write_raw_page(path: Path, table: pa.Table, dictionary_columns: list[str]) -> None:
    """Writes a Parquet file whose last column is the features, for `find_raw_page` to find.

    Args:
        path: The file to write.
        table: Its last column is a fixed-size list of float32 without nulls.
        dictionary_columns: Columns to encode with a dictionary.
    """
    numbers = table[COLUMN].chunk(0).flatten().to_numpy() if len(table) else np.empty(0, np.float32)
    others = [name for name in table.column_names if name != COLUMN]
    with (
        pa.OSFile(str(path), "wb") as sink,
        pq.ParquetWriter(
            sink,
            table.schema,
            compression="none",  # features do not compress
            use_dictionary=dictionary_columns,
            write_statistics=others,
            data_page_size=LARGEST_PAGE,
            max_rows_per_page=max(1, len(table)),
        ) as writer,
    ):
        before = sink.tell()
        writer.write_table(table, row_group_size=max(1, len(table)))
        end = sink.tell()
        page = range(end - numbers.nbytes, end)
        if len(numbers) and page.start > before and _bytes_are(path, page.start, numbers):
            blocks = PageBlocks.of(numbers.reshape(len(table), -1))
            writer.add_key_value_metadata(
                {PREFIX_KEY.decode(): str(page.start), BLOCKS_KEY.decode(): blocks.to_text()}
            )
        else:
            page = range(0)
        position = reserve_checksum(sink, writer, page)
    fill_in(path, position, page)


Allocate = Callable[[int, int], Tensor]
"""Allocates a float32 matrix, given its numbers of rows and columns."""

ReadRows = Callable[[slice, Allocate], Tensor]
"""Reads a slice of rows, perhaps into memory it allocates; shape (rows, dim), float32."""


def find_raw_page(
    path: Path, metadata: pq.FileMetaData, checksum: Checksum | None
) -> ReadRows | None:
    """A function that reads the features of a file that `write_raw_page` wrote, on any thread.

    Args:
        path: The file.
        metadata: Its metadata.
        checksum: Its checksum; None where it has none.

    Returns:
        None where the file has another layout, so that Arrow has to decode it.
    """
    begin = int((metadata.metadata or {}).get(PREFIX_KEY, 0))
    if not begin or metadata.num_row_groups != 1:
        return None
    group = metadata.row_group(0)
    column = group.column(group.num_columns - 1)
    size = column.num_values * FLOAT_BYTES
    end = column.data_page_offset + column.total_compressed_size
    # Another program that rewrites the file keeps its metadata but not its layout.
    as_written = (
        column.path_in_schema.split(".")[0] == COLUMN
        and column.physical_type == "FLOAT"
        and column.compression == "UNCOMPRESSED"
        and set(column.encodings) <= {"PLAIN", "RLE"}
        and begin > column.data_page_offset
        and begin + size == end
    )
    if not as_written:
        return None
    dim = column.num_values // group.num_rows
    page = Page(path, begin, group.num_rows, dim * FLOAT_BYTES, _blocks(metadata, checksum))

    def read_rows(rows: slice, allocate: Allocate) -> Tensor:
        features = allocate(rows.stop - rows.start, dim)
        memory = features.numpy().view(np.uint8).reshape(len(features), page.row_bytes)
        page.read(range(rows.start, rows.stop), memory)
        return features

    return read_rows


def read_checked(path: Path, columns: list[str] | None = None, **options: Any) -> pa.Table:  # noqa: ANN401
    """Columns of a Parquet file, decoded by Arrow, after a check of all its bytes.

    Args:
        path: File of any program.
        columns: Columns to read; None for all.
        options: Arguments of `pyarrow.parquet.ParquetFile.read`.

    Raises:
        FeatureStoreError: The checksum of the features does not match.
        UNREADABLE: As for `files.checked_parquet.open_parquet`.
    """
    with verified_parquet(path, memory_map=True) as (file, checksum):
        read_rows = find_raw_page(path, file.metadata, checksum)
        if read_rows is not None and checksum is not None:
            read_rows(slice(0, file.metadata.num_rows), torch.empty)
        return file.read(columns, **options)


def _blocks(metadata: pq.FileMetaData, checksum: Checksum | None) -> PageBlocks | None:
    """The checksums of the features; None where another program wrote the file."""
    if checksum is None:
        return None
    return PageBlocks.from_text(metadata.metadata[BLOCKS_KEY].decode())


def _bytes_are(path: Path, begin: int, numbers: np.ndarray) -> bool:
    """Whether a file holds these numbers from byte `begin` on."""
    with path.open("rb") as file:
        file.seek(begin)
        return np.array_equal(np.fromfile(file, np.uint8, numbers.nbytes), numbers.view(np.uint8))
