"""Which images a shard holds features of, by the digests that it was written with."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.base.files import CONTENT_BYTES
from difficulty_service.base.tables import bytes_of, to_arrow, to_numpy
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.known_images import ImageList
from difficulty_service.features.shard import REMEDY, map_shard, open_shard, write_batch


def read_images(path: Path, runs: int, *, with_ids: bool) -> ImageList:
    """The images that a shard holds features of."""
    batch, _ = map_shard(path)
    return ImageList(
        bytes_of(_column(path, batch, "content"))[::runs].copy(),
        _stamps(_column(path, batch, "stamp"))[::runs].copy(),
        _column(path, batch, "sample_id").to_pylist()[::runs] if with_ids else None,
    )


def read_stamps(path: Path) -> NDArray[np.uint64]:
    """The stamps of the files of a shard; 0 where an image is not a file. Shape (rows,)."""
    batch, _ = map_shard(path)
    return _stamps(_column(path, batch, "stamp"))


def keep_images(path: Path, kept: NDArray[np.bool_], runs: int) -> None:
    """Rewrites a shard without its bad images and those that are not `kept`. Shape (images,)."""
    open_shard(path, []).features()  # checks all of them, or damage would get new checksums
    batch, _ = map_shard(path)
    chosen = batch.take(to_arrow(np.flatnonzero(np.repeat(kept, runs))))
    write_batch(path, chosen.replace_schema_metadata())


def bad_images_list(bad_images: Sequence[BadImage], *, with_ids: bool) -> ImageList:
    """Bad images as a list; each must have been read as a whole."""
    contents = b"".join(bad.content or b"" for bad in bad_images)
    return ImageList(
        np.frombuffer(contents, dtype=np.uint8).reshape(-1, CONTENT_BYTES),
        np.array([bad.stamp or 0 for bad in bad_images], dtype=np.uint64),
        [bad.sample_id for bad in bad_images] if with_ids else None,
    )


def _column(path: Path, batch: pa.RecordBatch, name: str) -> pa.Array:
    if name not in batch.schema.names:
        raise FeatureStoreError(f"{path} is damaged (it lacks the column {name})", REMEDY)
    return batch[name]


def _stamps(column: pa.UInt64Array) -> NDArray[np.uint64]:
    """Shape (rows,)."""
    stamps: NDArray[np.uint64] = to_numpy(column.fill_null(0))
    return stamps
