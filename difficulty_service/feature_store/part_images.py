"""Which images a part holds features of, by the digests that it was written with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.feature_store.bad_image import BadImage
from difficulty_service.feature_store.known_images import ImageList
from difficulty_service.feature_store.part import damaged_part
from difficulty_service.feature_store.raw_page import read_checked, write_raw_page
from difficulty_service.files.arrow_columns import to_numpy
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_parquet import UNREADABLE, read_parquet
from difficulty_service.files.identity import CONTENT_BYTES


def read_images(path: Path, runs: int, *, with_ids: bool) -> ImageList:
    """The images that a part holds features of.

    Args:
        path: File of the part.
        runs: Number of rows of an image.
        with_ids: Whether to read the ids of the samples.

    Raises:
        FeatureStoreError: The part is damaged.
    """
    table = _read(path, ["content", "stamp", *(["sample_id"] if with_ids else [])])
    return ImageList(
        _digests(table["content"])[::runs].copy(),
        _stamps(table)[::runs].copy(),
        table["sample_id"].to_pylist()[::runs] if with_ids else None,
    )


def read_stamps(path: Path) -> NDArray[np.uint64]:
    """The stamps of the files of a part; 0 where an image is not a file. Shape (rows,).

    Raises:
        FeatureStoreError: The part is damaged.
    """
    return _stamps(_read(path, ["stamp"]))


def keep_images(path: Path, kept: NDArray[np.bool_], runs: int) -> None:
    """Rewrites a part with some of its images, and without its bad ones.

    Args:
        path: File of the part, which is replaced as a whole.
        kept: Whether to keep an image. Shape (images,).
        runs: Number of rows of an image.
    """
    rows = pa.array(np.flatnonzero(np.repeat(kept, runs)))
    table = read_checked(path, use_threads=False).take(rows).combine_chunks()
    with replacing(path) as temporary:
        write_raw_page(temporary, table.replace_schema_metadata(), ["sample_id"])


def bad_images_list(bad_images: Sequence[BadImage], *, with_ids: bool) -> ImageList:
    """Bad images as a list; each must have been read as a whole."""
    contents = b"".join(bad.content or b"" for bad in bad_images)
    return ImageList(
        np.frombuffer(contents, dtype=np.uint8).reshape(-1, CONTENT_BYTES),
        np.array([bad.stamp or 0 for bad in bad_images], dtype=np.uint64),
        [bad.sample_id for bad in bad_images] if with_ids else None,
    )


def _read(path: Path, columns: list[str]) -> pa.Table:
    try:
        # Selecting raises where a column is missing, which reading does not.
        return read_parquet(path, columns, use_threads=False).select(columns).combine_chunks()
    except UNREADABLE as error:
        raise damaged_part(path, error) from error


def _stamps(table: pa.Table) -> NDArray[np.uint64]:
    """Shape (rows,)."""
    stamps: NDArray[np.uint64] = to_numpy(table["stamp"].fill_null(0).combine_chunks())
    return stamps


def _digests(column: pa.ChunkedArray) -> NDArray[np.uint8]:
    """Shape (rows, 32)."""
    values = column.combine_chunks()
    bytes_ = np.frombuffer(values.buffers()[1] or b"", dtype=np.uint8)
    return bytes_.reshape(-1, CONTENT_BYTES)[values.offset : values.offset + len(values)]
