"""Features on disk: one Arrow file per shard, and a description of how they were made.

A shard appears whole or not at all, so a run that was killed resumes at the first missing shard.
Images that could not be read are listed in the shard that they would have been in, and in
`errors.parquet` together with the entries of the dataset that are no samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pyarrow as pa
import torch

from difficulty_service.base.checksums import dump_checked
from difficulty_service.base.errors import FeatureStoreError, Setting
from difficulty_service.base.files import remove_leftovers, replacing
from difficulty_service.base.tables import UNREADABLE, map_arrow
from difficulty_service.features.description import (
    DESCRIPTION_FILE,
    FORMAT_KEY,
    FORMAT_VERSION,
    FeatureDescription,
    is_store,
    read_description,
)
from difficulty_service.features.errors_file import BadImage
from difficulty_service.features.shard import (
    OpenShard,
    ShardTable,
    open_shard,
    prefetch_shard,
    read_appearance,
    read_bad_images,
    read_contents,
    write_shard,
)

SHARD_FILES, UNFINISHED_FILES = "part-*.arrow", "partial-*.arrow"
PREVIOUS_FOLDER, PREVIOUS_FILES = "previous", "[0-9]*.arrow"
FEATURE_FILES = (SHARD_FILES, UNFINISHED_FILES, f"{PREVIOUS_FOLDER}/{PREVIOUS_FILES}")

PREFETCHED_SHARDS = 8
"""Number of files that are prefetched before they are read: one for each thread, and some more."""


@dataclass(frozen=True)
class FeatureStore:
    """A folder of shards and their description, which has the warnings once it is complete."""

    folder: Path
    description: FeatureDescription

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class index."""
        return self.description.class_names

    @property
    def device(self) -> torch.device:
        """The CPU, on which files are mapped."""
        return torch.device("cpu")

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the dataset, one sentence each."""
        return self.description.warnings

    @property
    def num_shards(self) -> int:
        """Number of shards of a complete store."""
        return self.description.num_shards

    @property
    def runs(self) -> int:
        """Number of rows per sample."""
        return self.description.rows_per_sample

    @property
    def has_augmentation(self) -> bool:
        """Whether the features are those of random crops."""
        return self.description.has_augmentation

    @property
    def shard_rows(self) -> int:
        """Number of rows of a shard; the last shard, and shards with bad images, have fewer."""
        return self.description.shard_size * self.runs

    def shard_file(self, shard: int) -> Path:
        """Where a shard is, or will be."""
        return self.folder / f"part-{shard:05d}.arrow"

    def unfinished_file(self, shard: int) -> Path:
        """Where the features are that a stopped run has extracted of a shard."""
        return self.folder / f"partial-{shard:05d}.arrow"

    def missing_shards(self) -> list[int]:
        """Shards that do not exist yet."""
        return [shard for shard in range(self.num_shards) if not self.shard_file(shard).exists()]

    def write_shard(self, shard: int, table: ShardTable, bad_images: Sequence[BadImage]) -> None:
        """Writes one shard and its list of bad images."""
        write_shard(self.shard_file(shard), table, bad_images)
        self.unfinished_file(shard).unlink(missing_ok=True)

    def write_unfinished(
        self, shard: int, table: ShardTable, bad_images: Sequence[BadImage]
    ) -> None:
        """Writes what has been extracted of a shard so far."""
        write_shard(self.unfinished_file(shard), table, bad_images)

    def read_shard(self, shard: int) -> ShardTable:
        """One shard."""
        opened = self.open_shard(shard)
        return ShardTable(
            opened.sample_ids.to_pylist(), opened.labels, opened.runs, opened.features()
        )

    def slices(self, num_rows: int) -> Iterator[tuple[int, slice]]:
        """As in `FeatureSource`; the files of the next shards are prefetched meanwhile."""
        step = max(1, num_rows // self.runs) * self.runs
        starts = range(0, self.shard_rows, step)
        upcoming = iter(range(self.num_shards))
        for shard in range(self.num_shards):
            for ahead in islice(upcoming, PREFETCHED_SHARDS if shard == 0 else 1):
                prefetch_shard(self.shard_file(ahead))
            for start in starts:
                # The last slice is open, so that it does not matter how many rows the shard has.
                yield shard, slice(start, None if start == starts[-1] else start + step)

    def open_shard(
        self, shard: int, columns: Sequence[str] = ("sample_id", "run"), rows: slice | None = None
    ) -> OpenShard:
        """One shard, with its features still on disk; see `FeatureSource`."""
        return open_shard(self.shard_file(shard), columns, rows)

    def contents(self, shard: int) -> pa.FixedSizeBinaryArray | None:
        """Digest of each sample of a shard; see `FeatureSource`."""
        return read_contents(self.shard_file(shard), self.runs)

    def appearance(self, shard: int) -> pa.StructArray | None:
        """How the image of each sample of a shard looks; see `FeatureSource`."""
        return read_appearance(self.shard_file(shard), slice(None, None, self.runs))

    def bad_images(self) -> list[BadImage]:
        """Images that could not be read so far, in the order of the dataset."""
        present = sorted(set(range(self.num_shards)) - set(self.missing_shards()))
        return [bad for shard in present for bad in read_bad_images(self.shard_file(shard))]

    def with_warnings(self, warnings: Sequence[str], runtime: str | None = None) -> "FeatureStore":
        """The same store with other warnings, and a runtime, which are written down."""
        store = replace(self, description=self.description.with_warnings(warnings, runtime))
        store.write_description()
        return store

    def write_description(self) -> None:
        """Writes the description into the folder."""
        described = {FORMAT_KEY: FORMAT_VERSION, **self.description.to_json()}
        with replacing(self.folder / DESCRIPTION_FILE) as temporary:
            temporary.write_text(dump_checked(described, indent=1, sort_keys=True))


def create_store(
    folder: Path, description: FeatureDescription, *, resume: bool = True
) -> FeatureStore:
    """A store to write shards to: a new one, or one that an earlier run left incomplete.

    Args:
        folder: Folder of the store, which is created where it does not exist.
        resume: Whether to keep the features of an earlier run; otherwise they are deleted first.

    Raises:
        FeatureStoreError: The earlier run had other settings, and the message names each
            difference; or the folder holds files of another program.
    """
    store = FeatureStore(folder, description)
    path = folder / DESCRIPTION_FILE
    files = [file for pattern in FEATURE_FILES for file in sorted(folder.glob(pattern))]
    if path.exists() and resume:
        _require_same_settings(folder, read_description(folder), store.description)
    elif files and not path.exists():
        # Other programs use the same file names, and their files must not be deleted.
        raise FeatureStoreError(
            f"{folder} holds {files[0].name} but no {DESCRIPTION_FILE}, so it is not a folder of "
            "features",
            "use another ",
            Setting("out"),
            parameter="out",
        )
    else:
        for file in files:
            file.unlink()
    remove_leftovers(folder)
    store.write_description()
    return store


def open_store(folder: Path) -> FeatureStore:
    """Opens a complete store.

    Raises:
        FeatureStoreError: As for `read_description`; or shards are missing.
    """
    store = FeatureStore(folder, read_description(folder))
    missing = store.missing_shards()
    if missing:
        raise FeatureStoreError(
            f"{folder} lacks {len(missing)} of {store.num_shards} shards, first "
            f"{store.shard_file(missing[0]).name}",
            "run `difficulty extract` again to complete it",
        )
    return store


def holds_only_shards(folder: Path) -> bool:
    """Whether a folder holds shards of a feature store, but not its description."""
    first = next(iter(sorted(folder.glob("part-*.arrow"))), None)
    if first is None or is_store(folder):
        return False
    try:
        return {"sample_id", "features"} <= set(map_arrow(first)[0].schema.names)
    except UNREADABLE:
        return False


def _require_same_settings(folder: Path, old: FeatureDescription, new: FeatureDescription) -> None:
    if different := old.store_differences(new):
        raise FeatureStoreError(
            f"{folder} holds features that were extracted with other settings "
            f"({'; '.join(different)})",
            "use ",
            Setting("resume", value=False),
            " to replace them, or another ",
            Setting("out"),
        )
