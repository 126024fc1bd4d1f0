"""Which images resemble an image most: short vectors of all images, and an exact search in them.

Making the vectors needs torch, searching them does not.
"""

from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.base.checksums import DamagedFile, append_checksum, verify_path
from difficulty_service.base.files import replacing

if TYPE_CHECKING:
    from difficulty_service.features.source import FeatureSource
    from difficulty_service.gaussians.gaussian import Gaussians

ROWS_AT_ONCE = 1 << 14
"""Vectors that are compared at a time, which fit into a processor's cache."""

SHORTEST = 1e-12
"""Length of a vector from which on it is scaled to unit length."""

DECIMALS = 5
"""Decimals of a cosine that are compared; float16 has fewer."""


def write_vectors(
    path: Path,
    store: "FeatureSource",
    gaussians: "Gaussians",
    num_rows: int,
    ids: pa.StringArray | None = None,
) -> bool:
    """Writes a vector of unit length for each row of a score file, float16, in a NumPy file.

    The memory does not grow with the store. A row whose id the store does not have gets NaN.
    Without ids, the rows are the samples of the store in its order. Nothing is written, and False
    returned, where the store has no sample of the score file.
    """
    from difficulty_service.reports.map import coordinates, similarity_directions

    directions = similarity_directions(gaussians)
    batches = (
        (batch_ids, block / np.maximum(np.linalg.norm(block, axis=1, keepdims=True), SHORTEST))
        for batch_ids, block in coordinates(store, gaussians, directions)
    )
    return write_rows(path, batches, (num_rows, directions.shape[1]), ids)


def write_features(
    path: Path, store: "FeatureSource", num_rows: int, ids: pa.StringArray | None = None
) -> bool:
    """Writes the features of each row of a score file as they are, like `write_vectors`."""
    from difficulty_service.reports.map import first_features

    batches = ((batch_ids, block.numpy()) for batch_ids, block in first_features(store))
    first = next(batches)
    return write_rows(path, chain([first], batches), (num_rows, first[1].shape[1]), ids)


def write_rows(
    path: Path,
    batches: Iterable[tuple[pa.Array, NDArray[np.floating]]],
    shape: tuple[int, int],
    ids: pa.StringArray | None = None,
) -> bool:
    """Writes a file like `write_vectors`, of batches: ids of some samples, and a row for each."""
    found = first = 0
    with replacing(path) as temporary:
        vectors = np.lib.format.open_memmap(temporary, "w+", np.float16, shape)
        if ids is not None:
            vectors[:] = np.nan
        for batch_ids, block in batches:
            rows, known = _rows_of(batch_ids, ids, first)
            vectors[rows] = block[known]
            first += len(block)
            found += len(rows)
        vectors.flush()
        del vectors
        append_checksum(temporary)
    if not found:
        path.unlink()
    return found > 0


def map_vectors(path: Path) -> NDArray[np.float16]:
    """Maps a file that `write_rows` has written.

    Raises:
        DamagedFile: It has changed since, or has no checksum.
        OSError: It cannot be read.
    """
    if verify_path(path) is None:
        raise DamagedFile(f"{path} has no checksum")
    vectors: NDArray[np.float16] = np.load(path, mmap_mode="r")
    return vectors


def cosines_to(vectors: NDArray[np.float16], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """Cosine of each vector to one of unit length; NaN for one that is not known."""
    cosines = np.empty(len(vectors), np.float32)
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        some = vectors[start : start + ROWS_AT_ONCE].astype(np.float32)
        cosines[start : start + len(some)] = (some @ query).round(DECIMALS)
    return cosines


def _rows_of(
    batch_ids: pa.Array, ids: pa.StringArray | None, first: int
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Rows of the samples of a batch that have one, and which samples these are."""
    if ids is None or ids.slice(first, len(batch_ids)).equals(batch_ids):
        return np.arange(first, first + len(batch_ids)), np.ones(len(batch_ids), bool)
    rows = pc.index_in(batch_ids, value_set=ids)
    return rows.drop_null().cast(pa.int64()).to_numpy(), rows.is_valid().to_numpy(
        zero_copy_only=False
    )


def most_similar(vectors: NDArray[np.float16], row: int, count: int) -> list[int]:
    """Rows of the vectors with the largest cosines to one of them, without itself.

    The search is exact and its memory is constant; of equal cosines the earlier row comes first. A
    vector that is not known is NaN, and nothing is similar to it.
    """
    query = vectors[row].astype(np.float32)
    rows, cosines = np.empty(0, np.int64), np.empty(0, np.float32)
    if np.isnan(query).any():
        return []
    for start in range(0, len(vectors), ROWS_AT_ONCE):
        found = vectors[start : start + ROWS_AT_ONCE].astype(np.float32) @ query
        # Copies get cosines that differ by rounding.
        found = found.round(DECIMALS)
        if start <= row < start + len(found):
            found[row - start] = -np.inf
        smallest = cosines[-1] if len(cosines) == count else -np.inf
        places = np.flatnonzero(found > smallest)
        rows = np.concatenate((rows, start + places))
        cosines = np.concatenate((cosines, found[places]))
        order = np.lexsort((rows, -cosines))[:count]
        rows, cosines = rows[order], cosines[order]
    nearest: list[int] = rows.tolist()
    return nearest
