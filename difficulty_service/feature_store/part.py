"""One file of a feature store: ids, labels and features of a shard, and its bad images."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from difficulty_service.errors import FeatureStoreError
from difficulty_service.feature_store.bad_image import BadImage
from difficulty_service.feature_store.raw_page import (
    Allocate,
    ReadRows,
    find_raw_page,
    write_raw_page,
)
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_parquet import (
    UNREADABLE,
    read_parquet_schema,
    verified_parquet,
)
from difficulty_service.files.identity import CONTENT_BYTES

ERRORS_KEY = b"errors"
PREFETCH_BYTES = 1 << 20
"""Bytes to prefetch per call; Linux truncates a call to the largest request of the disk."""

NO_IDS = pa.chunked_array([], pa.string())


@dataclass(frozen=True)
class Part:
    """The features of one shard; the rows of a sample, one per augmentation run, are together.

    Attributes:
        sample_ids: Sample id of each row.
        labels: Class indices. Shape (rows,).
        runs: Augmentation run of each row, 0 for none. Shape (rows,).
        features: float32. Shape (rows, dim).
        contents: Digest of the encoded image of each row; None where they are not known.
        stamps: Stamp of the file of each row, None for images that are not files of their own.
    """

    sample_ids: Sequence[str]
    labels: Tensor
    runs: Tensor
    features: Tensor
    contents: Sequence[bytes] | None = None
    stamps: Sequence[int | None] | None = None


@dataclass(frozen=True)
class OpenPart:
    """A part, or some rows of it, whose features are still on disk.

    Attributes:
        sample_ids: Sample id of each row; empty where the column was not read.
        labels: Class indices. Shape (rows,).
        runs: Augmentation run of each row; empty where the column was not read.
        read_features: Reads the features of some of these rows; may be called by any thread.
    """

    sample_ids: pa.ChunkedArray
    labels: Tensor
    runs: Tensor
    read_features: ReadRows

    def features(self) -> Tensor:
        """The features of all rows. Shape (rows, dim)."""
        return self.read_features(slice(0, len(self.labels)), torch.empty)


def write_part(path: Path, part: Part, bad_images: Sequence[BadImage]) -> None:
    """Writes a part and its bad images; the file appears whole or not at all."""
    dim = part.features.shape[1]
    flat = pa.array(part.features.contiguous().numpy().ravel())
    errors = json.dumps([_bad_image_to_json(bad) for bad in bad_images])
    table = pa.table(
        {
            "sample_id": pa.array(part.sample_ids, pa.string()),
            "label": pa.array(part.labels.numpy(), pa.int32()),
            "run": pa.array(part.runs.numpy(), pa.int16()),
            **_identities(part),
            "features": pa.FixedSizeListArray.from_arrays(flat, dim),
        }
    ).replace_schema_metadata({ERRORS_KEY: errors.encode()})
    with replacing(path) as temporary:
        write_raw_page(temporary, table, dictionary_columns=["sample_id"])


def _identities(part: Part) -> dict[str, pa.Array]:
    """The columns that recognise an image; none where its content is not known."""
    if part.contents is None:
        return {}
    return {
        "content": pa.array(part.contents, pa.binary(CONTENT_BYTES)),
        "stamp": pa.array(part.stamps or [None] * len(part.contents), pa.uint64()),
    }


def open_part(path: Path, columns: Sequence[str], rows: slice | None = None) -> OpenPart:
    """Opens a part; its features stay on disk.

    Args:
        path: File of the part.
        columns: Columns to read besides the label: some of `sample_id` and `run`.
        rows: Rows to open, as far as they exist; None for all.

    Raises:
        FeatureStoreError: The part is missing or damaged, or is the file of another program.
    """
    try:
        with verified_parquet(path) as (file, checksum):
            _require_columns(path, file.schema_arrow, ["label", *columns, "features"])
            read_features = find_raw_page(path, file.metadata, checksum)
            decoded = [] if read_features else ["features"]
            table = file.read(["label", *columns, *decoded], use_threads=False)
    except FileNotFoundError:
        raise FeatureStoreError(
            f"{path} is missing", "run `difficulty extract` again to complete the store"
        ) from None
    except UNREADABLE as error:
        raise damaged_part(path, error) from error
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


def _require_columns(path: Path, schema: pa.Schema, columns: Sequence[str]) -> None:
    """Raises FeatureStoreError where a file lacks columns, or its features differ in length."""
    missing = [name for name in columns if name not in schema.names]
    problem = f"lacks the columns {missing}" if missing else ""
    if not missing and not pa.types.is_fixed_size_list(schema.field("features").type):
        kind = schema.field("features").type
        problem = f"has features of type {kind}, but expected is a fixed-size list of float"
    if problem:
        raise FeatureStoreError(
            f"{path} is not a part of a feature store: it {problem}",
            "make one with `difficulty extract`, or write the columns sample_id (string), label "
            "(int32), run (int16) and features (fixed-size list of float32)",
        )


def prefetch_part(path: Path) -> None:
    """Has the system read a file into its cache in the background; ignores errors."""
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError), path.open("rb", buffering=0) as file:
        for start in range(0, os.fstat(file.fileno()).st_size, PREFETCH_BYTES):
            os.posix_fadvise(file.fileno(), start, PREFETCH_BYTES, os.POSIX_FADV_WILLNEED)


def _read_from(read_rows: ReadRows, start: int, rows: slice, allocate: Allocate) -> Tensor:
    """Features of rows that are counted from `start`. Shape (rows, dim)."""
    return read_rows(slice(start + rows.start, start + rows.stop), allocate)


def read_bad_images(path: Path) -> list[BadImage]:
    """The bad images of a part's shard.

    Raises:
        FeatureStoreError: The part is damaged.
    """
    try:
        metadata = read_parquet_schema(path).metadata or {}
        entries = json.loads(metadata.get(ERRORS_KEY, b"[]"))
        return [_bad_image_from_json(entry) for entry in entries]
    except UNREADABLE as error:
        raise damaged_part(path, error) from error


def _bad_image_to_json(bad: BadImage) -> list[Any]:
    content = bad.content.hex() if bad.content else None
    return [bad.sample_id, bad.reason, content, bad.stamp]


def _bad_image_from_json(entry: list[Any]) -> BadImage:
    """The inverse of `_bad_image_to_json`."""
    sample_id, reason, content, stamp = entry
    return BadImage(sample_id, reason, bytes.fromhex(content) if content else None, stamp)


def damaged_part(path: Path, error: Exception) -> FeatureStoreError:
    """The error that a file of features cannot be read."""
    return FeatureStoreError(
        f"{path} is damaged ({error})", "delete it and run `difficulty extract` again"
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
    """A tensor on the same memory; `to_numpy` would import pandas, which can take seconds."""
    tensor: Tensor = from_dlpack(numbers)
    return tensor
