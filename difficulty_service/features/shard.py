"""One file of a feature store: ids, labels and features of a shard, and its bad images.

Features stay in the file. Their checksums are of blocks of rows: one of the whole file would have
to read all of it for a few rows, or for its list of bad images.
"""

import json
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import pyarrow as pa
import torch
import xxhash
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.base.files import CONTENT_BYTES, replacing
from difficulty_service.base.tables import UNREADABLE, map_arrow, strings_to_arrow, write_arrow
from difficulty_service.features.array_columns import is_vector
from difficulty_service.features.errors_file import BadImage

BLOCKS_KEY = b"features_blocks"
"""Key of the metadata with `checksums`."""

BLOCK_BYTES, MOST_ROWS = 1 << 20, 1 << 10
REMEDY = "delete it and run `difficulty extract` again"


@dataclass(frozen=True)
class MappedFeatures:
    """The features of a file from some row on.

    Attributes:
        features: All features of the file, on mapped memory. Shape (rows, dim).
        first: Row of the file from which rows are counted.
        block_rows: Number of rows of each block of the file but the last.
        digests: Checksum of each block; none where another program wrote the file.
    """

    path: Path
    num_bytes: int
    features: Tensor
    first: int
    block_rows: int
    digests: Sequence[int]
    _verified: set[int] = field(default_factory=set, compare=False)

    @classmethod
    def of(cls, path: Path, features: Tensor, blocks: str | None, first: int) -> Self:
        """Features of a file with the text of `checksums`; None where it has none."""
        block_rows, digests = json.loads(blocks) if blocks else (1, [])
        return cls(path, path.stat().st_size, features, first, block_rows, digests)

    def __call__(self, rows: slice) -> Tensor:
        """Some rows on mapped memory, which nobody may write to; any thread may call this."""
        # The system ends a process that reads mapped memory beyond the end of its file.
        with suppress(FileNotFoundError):
            if self.path.stat().st_size < self.num_bytes:
                raise FeatureStoreError(f"{self.path} ends within its features", REMEDY)
        start, stop = self.first + rows.start, self.first + rows.stop
        last = min(-(-stop // self.block_rows), len(self.digests))
        for block in range(start // self.block_rows, last):
            if block not in self._verified:
                self._verify(block)
        return self.features[start:stop]

    def _verify(self, block: int) -> None:
        if _digest(self.features, block, self.block_rows) != self.digests[block]:
            raise FeatureStoreError(
                f"{self.path} is damaged (the checksum of its features does not match)", REMEDY
            )
        self._verified.add(block)


def checksums(features: Tensor) -> str:
    """The blocks of float32 features, as text for the metadata. Shape (rows, dim)."""
    # A power of two, because readers take some thousand rows, also a power of two, at a time.
    fitting = max(1, min(MOST_ROWS, BLOCK_BYTES // max(1, features[:1].nbytes)))
    rows = 1 << (fitting.bit_length() - 1)
    blocks = range(-(-len(features) // rows))
    return json.dumps([rows, [_digest(features, block, rows) for block in blocks]])


def _digest(features: Tensor, block: int, rows: int) -> int:
    return xxhash.xxh3_64_intdigest(features[block * rows : (block + 1) * rows].numpy().data)


FEATURES, APPEARANCE, ERRORS_KEY = "features", "appearance", b"errors"
PREFETCH_BYTES = 1 << 20
"""Bytes to prefetch per call; Linux truncates a call to the largest request of the disk."""

NO_IDS, NO_RUNS = strings_to_arrow([]), torch.empty(0, dtype=torch.int64)

ReadRows = Callable[[slice], Tensor]
"""Reads a slice of rows; shape (rows, dim), float32 or float64, which must not be written to."""


@dataclass(frozen=True)
class ShardTable:
    """The features of one shard; the rows of a sample, one per augmentation run, are together.

    Attributes:
        labels: Class indices. Shape (rows,).
        runs: Augmentation run of each row, 0 for none. Shape (rows,).
        features: float32. Shape (rows, dim).
        contents: Digest of the encoded image of each row; None where they are not known.
        stamps: Stamp of the file of each row, None for images that are not files of their own.
        appearance: Numbers of the image of each row, by name, null where they are not known; None
            where they are known of none.
    """

    sample_ids: Sequence[str]
    labels: Tensor
    runs: Tensor
    features: Tensor
    contents: Sequence[bytes] | None = None
    stamps: Sequence[int | None] | None = None
    appearance: pa.StructArray | None = None


@dataclass(frozen=True)
class OpenShard:
    """A shard, or some rows of it, whose features are still on disk.

    Attributes:
        sample_ids: Sample id of each row; empty where the column was not read.
        labels: Class indices. Shape (rows,).
        runs: Augmentation run of each row; empty where the column was not read.
        read_features: Reads the features of some of these rows; may be called by any thread.
    """

    sample_ids: pa.StringArray
    labels: Tensor
    runs: Tensor
    read_features: ReadRows

    def features(self) -> Tensor:
        """The features of all rows. Shape (rows, dim)."""
        return self.read_features(slice(0, len(self.labels)))


def write_shard(path: Path, table: ShardTable, bad_images: Sequence[BadImage]) -> None:
    """Writes a shard and its bad images; the file appears whole or not at all."""
    flat = pa.array(table.features.contiguous().numpy().ravel())
    batch = pa.record_batch(
        {
            "sample_id": pa.array(table.sample_ids, pa.string()),
            "label": pa.array(table.labels.numpy(), pa.int32()),
            "run": pa.array(table.runs.numpy(), pa.int16()),
            **_identities(table),
            **({} if table.appearance is None else {APPEARANCE: table.appearance}),
            FEATURES: pa.FixedSizeListArray.from_arrays(flat, table.features.shape[1]),
        }
    )
    errors = json.dumps(
        [
            [bad.sample_id, bad.reason, bad.content.hex() if bad.content else None, bad.stamp]
            for bad in bad_images
        ]
    )
    write_batch(path, batch.replace_schema_metadata({ERRORS_KEY: errors.encode()}))


def write_batch(path: Path, batch: pa.RecordBatch) -> None:
    """Writes the columns of a shard, and checksums; the file appears whole or not at all."""
    blocks = checksums(matrix_of(batch[FEATURES])).encode()
    batch = batch.replace_schema_metadata({**(batch.schema.metadata or {}), BLOCKS_KEY: blocks})
    with replacing(path) as temporary:
        write_arrow(temporary, batch, without=FEATURES)


def _identities(table: ShardTable) -> dict[str, pa.Array]:
    """The columns that recognise an image; none where its content is not known."""
    if table.contents is None:
        return {}
    return {
        "content": pa.array(table.contents, pa.binary(CONTENT_BYTES)),
        "stamp": pa.array(table.stamps or [None] * len(table.contents), pa.uint64()),
    }


def open_shard(path: Path, columns: Sequence[str], rows: slice | None = None) -> OpenShard:
    """Opens a shard; its features stay on disk.

    Args:
        columns: Columns to read besides the label: some of `sample_id` and `run`.
        rows: Rows to open, as far as they exist; None for all.
    """
    batch, is_checked = map_shard(path)
    _require_columns(path, batch, ["label", *columns, FEATURES])
    blocks = batch.schema.metadata[BLOCKS_KEY].decode() if is_checked else None
    start, stop, _ = (rows or slice(None)).indices(len(batch))
    chosen = batch.slice(start, stop - start)
    return OpenShard(
        sample_ids=chosen["sample_id"].cast(pa.string()) if "sample_id" in columns else NO_IDS,
        labels=_integers(chosen["label"]),
        runs=_integers(chosen["run"]) if "run" in columns else NO_RUNS,
        read_features=MappedFeatures.of(path, matrix_of(batch[FEATURES]), blocks, start),
    )


def map_shard(path: Path) -> tuple[pa.RecordBatch, bool]:
    """The columns of a shard on mapped memory, and whether it has a checksum."""
    try:
        return map_arrow(path)
    except FileNotFoundError:
        raise FeatureStoreError(
            f"{path} is missing", "run `difficulty extract` again to complete the store"
        ) from None
    except UNREADABLE as error:
        raise FeatureStoreError(f"{path} is damaged ({error})", REMEDY) from error


def _require_columns(path: Path, batch: pa.RecordBatch, columns: Sequence[str]) -> None:
    """Raises FeatureStoreError where a file lacks columns, or its features differ in length."""
    missing = [name for name in columns if name not in batch.schema.names]
    problem = f"lacks the columns {missing}" if missing else ""
    if not missing:
        kind = batch.schema.field(FEATURES).type
        nulls = [name for name in columns if batch[name].null_count]
        if not pa.types.is_fixed_size_list(kind) or not is_vector(kind):
            problem = f"has features of type {kind}, but expected is a fixed-size list of float"
        elif nulls:
            problem = f"has nulls in the columns {nulls}"
    if problem:
        raise FeatureStoreError(
            f"{path} is not a shard of a feature store: it {problem}",
            "make one with `difficulty extract`, or write the columns sample_id (string), label "
            "(int32), run (int16) and features (fixed-size list of float32)",
        )


def prefetch_shard(path: Path) -> None:
    """Has the system read a file into its cache in the background; ignores errors."""
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError), path.open("rb", buffering=0) as file:
        for start in range(0, os.fstat(file.fileno()).st_size, PREFETCH_BYTES):
            os.posix_fadvise(file.fileno(), start, PREFETCH_BYTES, os.POSIX_FADV_WILLNEED)


def read_bad_images(path: Path) -> list[BadImage]:
    """The bad images of a shard."""
    batch, _ = map_shard(path)
    entries = json.loads((batch.schema.metadata or {}).get(ERRORS_KEY, b"[]"))
    return [
        BadImage(sample_id, reason, bytes.fromhex(content) if content else None, stamp)
        for sample_id, reason, content, stamp in entries
    ]


def read_contents(path: Path, runs: int) -> pa.FixedSizeBinaryArray | None:
    """Digest of each sample of a shard, which has some rows each; None where none are stored."""
    batch, _ = map_shard(path)
    return batch["content"][::runs] if "content" in batch.schema.names else None


def read_appearance(path: Path, rows: slice | None = None) -> pa.StructArray | None:
    """Numbers of the image of each row of a shard, or of some; None where none are stored."""
    batch, _ = map_shard(path)
    return batch[APPEARANCE][rows or slice(None)] if APPEARANCE in batch.schema.names else None


def join_appearance(
    columns: Sequence[pa.StructArray | None], lengths: Sequence[int]
) -> pa.StructArray | None:
    """The numbers of several shards of these lengths, in order; None where none are stored."""
    kind = next((column.type for column in columns if column is not None), None)
    if kind is None:
        return None
    return pa.concat_arrays(
        [
            pa.nulls(length, kind) if column is None else column.cast(kind)
            for column, length in zip(columns, lengths, strict=True)
        ]
    )


def matrix_of(column: pa.FixedSizeListArray) -> Tensor:
    """The features of a column, on its memory where they are float32. Shape (rows, dim)."""
    return _tensor(column.flatten()).to(torch.float32).view(-1, column.type.list_size)


def _integers(column: pa.Array) -> Tensor:
    return _tensor(column).to(torch.int64)


def _tensor(numbers: pa.Array) -> Tensor:
    """A tensor on the same memory; `to_numpy` would import pandas, which can take seconds."""
    tensor: Tensor = from_dlpack(numbers)
    return tensor
