"""Rows of Parquet files in batches that fit in memory, whatever their pages unpack to."""

from collections.abc import Iterator, Sequence
from itertools import islice

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.datasets.parquet_pages import read_pages
from difficulty_service.errors import DatasetError, Setting

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
