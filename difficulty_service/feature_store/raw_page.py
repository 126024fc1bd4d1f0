"""Features read from a Parquet file as the bytes they are, without decoding them.

Arrow decodes a list column number by number, which takes longer than fitting Gaussians to it.
Therefore a part holds its features on one page, in the layout of memory, and its metadata says at
which byte of the file they begin. To any other reader it is an ordinary Parquet file, and files of
other writers are decoded by Arrow.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from difficulty_service.errors import FeatureStoreError

COLUMN = "features"
PREFIX_KEY = b"features_prefix"
"""Metadata key: position of the features in the file, in bytes."""

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
        begin = end - numbers.nbytes
        if len(numbers) and begin > before and _bytes_are(path, begin, numbers):
            writer.add_key_value_metadata({PREFIX_KEY.decode(): str(begin)})


Allocate = Callable[[int, int], Tensor]
"""Allocates a float32 matrix, given its numbers of rows and columns."""

ReadRows = Callable[[slice, Allocate], Tensor]
"""Reads a slice of rows, perhaps into memory it allocates; shape (rows, dim), float32."""


def find_raw_page(path: Path, metadata: pq.FileMetaData) -> ReadRows | None:
    """A function that reads the features of a file that `write_raw_page` wrote, on any thread.

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

    def read_rows(rows: slice, allocate: Allocate) -> Tensor:
        features = allocate(rows.stop - rows.start, dim)
        # Faster than mapping the file: the kernel copies a page in less time than it maps one.
        with path.open("rb", buffering=0) as file:
            file.seek(begin + rows.start * dim * FLOAT_BYTES)
            unread = memoryview(features.numpy().ravel().view(np.uint8).data)
            while unread and (num_bytes := file.readinto(unread)):
                unread = unread[num_bytes:]
        if unread:
            raise FeatureStoreError(
                f"{path} ends within its features", "delete it and run `difficulty extract` again"
            )
        return features

    return read_rows


def _bytes_are(path: Path, begin: int, numbers: np.ndarray) -> bool:
    """Whether a file holds these numbers from byte `begin` on."""
    with path.open("rb") as file:
        file.seek(begin)
        return np.array_equal(np.fromfile(file, np.uint8, numbers.nbytes), numbers.view(np.uint8))
