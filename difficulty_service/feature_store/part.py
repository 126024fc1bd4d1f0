"""One file of a feature store: ids, labels and features of a shard, and what could not be read."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from difficulty_service.atomic_file import replacing
from difficulty_service.errors import FeatureStoreError
from difficulty_service.feature_store.raw_page import Allocate, ReadRows, find_plain, write_plain

ERRORS_KEY = b"errors"
ASKED_AT_ONCE = 1 << 20
"""Bytes; Linux cuts what it is asked for ahead to what one request to the disk may be."""

NO_IDS = pa.chunked_array([], pa.string())


@dataclass(frozen=True)
class BadImage:
    """An image that gave no features, and why."""

    sample_id: str
    reason: str


@dataclass(frozen=True)
class Part:
    """The features of one shard; the rows of a sample, one per augmentation run, are together.

    Attributes:
        sample_ids: One per row.
        labels: Class indices. Shape (rows,).
        runs: Augmentation run of each row, 0 for none. Shape (rows,).
        features: float32. Shape (rows, dim).
    """

    sample_ids: Sequence[str]
    labels: Tensor
    runs: Tensor
    features: Tensor


@dataclass(frozen=True)
class OpenPart:
    """A part, or some rows of it, whose features are still on disk.

    Attributes:
        sample_ids: Strings, one per row; empty where not asked for.
        labels: As in `Part`.
        runs: As in `Part`; empty where not asked for.
        read_features: Gives some of these rows' features; may be called by any thread.
    """

    sample_ids: pa.ChunkedArray
    labels: Tensor
    runs: Tensor
    read_features: ReadRows

    def features(self) -> Tensor:
        """All of them. Shape (rows, dim)."""
        return self.read_features(slice(0, len(self.labels)), torch.empty)


def write_part(path: Path, part: Part, bad_images: Sequence[BadImage]) -> None:
    """Writes a part and what could not be read of it; it appears whole or not at all."""
    dim = part.features.shape[1]
    flat = pa.array(part.features.contiguous().numpy().ravel())
    errors = json.dumps([[bad.sample_id, bad.reason] for bad in bad_images])
    table = pa.table(
        {
            "sample_id": pa.array(part.sample_ids, pa.string()),
            "label": pa.array(part.labels.numpy(), pa.int32()),
            "run": pa.array(part.runs.numpy(), pa.int16()),
            "features": pa.FixedSizeListArray.from_arrays(flat, dim),
        }
    ).replace_schema_metadata({ERRORS_KEY: errors.encode()})
    with replacing(path) as temporary:
        write_plain(temporary, table, dictionary_columns=["sample_id"])


def open_part(path: Path, columns: Sequence[str], rows: slice | None = None) -> OpenPart:
    """A part without its features, which can be read from it.

    Args:
        path: Its file.
        columns: What to read besides the label, of `sample_id` and `run`.
        rows: Which rows, as far as they are there; None for all.

    Raises:
        FeatureStoreError: It is missing or damaged.
    """
    try:
        with pq.ParquetFile(path) as file:
            read_features = find_plain(path, file.metadata)
            decoded = [] if read_features else ["features"]
            table = file.read(["label", *columns, *decoded], use_threads=False)
    except FileNotFoundError:
        raise FeatureStoreError(
            f"{path} is missing; run `difficulty extract` again to complete the store"
        ) from None
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from error
    if read_features is None:
        features = _features(table.combine_chunks())
        read_features = lambda rows, _allocate: features[rows]  # noqa: E731 - one of two
    start, stop, _ = (rows or slice(None)).indices(len(table))
    table = table.slice(start, stop - start)
    return OpenPart(
        sample_ids=table["sample_id"] if "sample_id" in columns else NO_IDS,
        labels=_integers(table, "label"),
        runs=_integers(table, "run"),
        read_features=partial(_read_from, read_features, start),
    )


def expect_part(path: Path) -> None:
    """Has the system read a file from disk while others are worked on; says nothing of errors."""
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError), path.open("rb", buffering=0) as file:
        for start in range(0, os.fstat(file.fileno()).st_size, ASKED_AT_ONCE):
            os.posix_fadvise(file.fileno(), start, ASKED_AT_ONCE, os.POSIX_FADV_WILLNEED)


def _read_from(read_rows: ReadRows, start: int, rows: slice, allocate: Allocate) -> Tensor:
    """Some features, where rows are counted from `start`. Shape (rows, dim)."""
    return read_rows(slice(start + rows.start, start + rows.stop), allocate)


def read_bad_images(path: Path) -> list[BadImage]:
    """What could not be read of the shard of a part.

    Raises:
        FeatureStoreError: The part is damaged.
    """
    try:
        metadata = pq.read_schema(path).metadata or {}
    except (pa.ArrowInvalid, OSError) as error:
        raise _damaged(path, error) from error
    return [BadImage(*entry) for entry in json.loads(metadata.get(ERRORS_KEY, b"[]"))]


def _damaged(path: Path, error: Exception) -> FeatureStoreError:
    return FeatureStoreError(
        f"{path} is damaged ({error}); delete it and run `difficulty extract` again"
    )


def _integers(table: pa.Table, name: str) -> Tensor:
    if name not in table.column_names:
        return torch.empty(0, dtype=torch.int64)
    return _tensor(table[name].combine_chunks()).to(torch.int64)


def _features(table: pa.Table) -> Tensor:
    column = table["features"]
    width = column.type.list_size
    if not len(column):
        return torch.empty(0, width)
    return _tensor(column.chunk(0).flatten()).to(torch.float32, copy=True).view(-1, width)


def _tensor(numbers: pa.Array) -> Tensor:
    """The same memory. Not by to_numpy: it imports pandas, which takes longer than many a store."""
    found: Tensor = from_dlpack(numbers)
    return found
