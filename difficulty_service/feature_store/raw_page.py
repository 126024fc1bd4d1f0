"""Features read from a Parquet file as the bytes they are, without decoding them.

Arrow decodes a list column number by number, which takes longer than fitting Gaussians to it. So
a part holds its features on one page, as they are in memory, and notes how many bytes of the file
come before them. To any other reader it is a Parquet file like all others, and a file that another
writer made is left to Arrow.
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
"""Metadata: bytes of the file before the first number of the features."""

LARGEST_PAGE = 1 << 30
FLOAT_BYTES = 4


def write_plain(path: Path, table: pa.Table, dictionary_columns: list[str]) -> None:
    """Writes a Parquet file whose last column is the features, where `find_plain` finds them.

    Args:
        path: The file to write.
        table: Its last column is a fixed-size list of float32 without nulls.
        dictionary_columns: Columns worth a dictionary.
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
"""Gives memory for so many rows and columns of float32."""

ReadRows = Callable[[slice, Allocate], Tensor]
"""Gives some rows, from start to stop, perhaps in memory asked for; shape (rows, dim), float32."""


def find_plain(path: Path, metadata: pq.FileMetaData) -> ReadRows | None:
    """How to read the features of a file as `write_plain` leaves it; may be called by any thread.

    Returns:
        None where Arrow has to decode them: the file was written otherwise.
    """
    begin = int((metadata.metadata or {}).get(PREFIX_KEY, 0))
    if not begin or metadata.num_row_groups != 1:
        return None
    group = metadata.row_group(0)
    column = group.column(group.num_columns - 1)
    size = column.num_values * FLOAT_BYTES
    end = column.data_page_offset + column.total_compressed_size
    # Metadata outlives a file that another program reads and writes again; its layout does not.
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
        # Faster than to map the file: the kernel copies a page sooner than it maps one.
        with path.open("rb", buffering=0) as file:
            file.seek(begin + rows.start * dim * FLOAT_BYTES)
            wanted = memoryview(features.numpy().ravel().view(np.uint8).data)
            while wanted and (num_bytes := file.readinto(wanted)):
                wanted = wanted[num_bytes:]
        if wanted:
            raise FeatureStoreError(
                f"{path} ends within its features; delete it and run `difficulty extract` again"
            )
        return features

    return read_rows


def _bytes_are(path: Path, begin: int, numbers: np.ndarray) -> bool:
    """Whether these numbers follow each other in a file from there on."""
    with path.open("rb") as file:
        file.seek(begin)
        return np.array_equal(np.fromfile(file, np.uint8, numbers.nbytes), numbers.view(np.uint8))
