"""Features on disk: one Parquet part per shard, and a description of how they were made.

A part appears whole or not at all, so a run that was killed goes on at the first part that is not
there. What could not be read is kept in the part it would have been in.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from difficulty_service.atomic_file import remove_leftovers, replacing
from difficulty_service.errors import FeatureStoreError
from difficulty_service.feature_store.part import (
    BadImage,
    OpenPart,
    Part,
    expect_part,
    open_part,
    read_bad_images,
    write_part,
)

DESCRIPTION_FILE = "store.json"
ERRORS_FILE = "errors.parquet"

PARTS_AHEAD = 8
"""Files that are asked for before they are read: what threads have in hand, and some more."""

FREE_TO_CHANGE = {"dataset", "package_version"}
"""Keys of a description that a resumed run need not share with the first one."""

ERRORS_SCHEMA = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("sample_id", "reason")]
)


@dataclass(frozen=True)
class FeatureStore:
    """A folder of parts and the description they share.

    Attributes:
        folder: Where the parts are.
        description: JSON values: dataset, fingerprint, backbone, weights, preprocessing, classes.
    """

    folder: Path
    description: Mapping[str, Any]

    @property
    def class_names(self) -> tuple[str, ...]:
        """Name of each class index."""
        return tuple(self.description["class_names"])

    @property
    def num_parts(self) -> int:
        """Parts of a complete store."""
        return int(self.description["num_shards"])

    @property
    def runs(self) -> int:
        """Rows per sample."""
        return max(1, int(self.description["augment_runs"]))

    @property
    def part_rows(self) -> int:
        """Rows of a part; the last one, and those with bad images, have fewer."""
        return int(self.description["shard_size"]) * self.runs

    def part_file(self, shard: int) -> Path:
        """Where the part of a shard is, or will be."""
        return self.folder / f"part-{shard:05d}.parquet"

    def missing_parts(self) -> list[int]:
        """Shards whose part is not there yet."""
        return [shard for shard in range(self.num_parts) if not self.part_file(shard).exists()]

    def write_part(self, shard: int, part: Part, bad_images: Sequence[BadImage]) -> None:
        """Writes the part of one shard and what could not be read of it."""
        write_part(self.part_file(shard), part, bad_images)

    def read_part(self, shard: int) -> Part:
        """The part of one shard.

        Raises:
            FeatureStoreError: It is missing or damaged.
        """
        part = self.open_part(shard)
        return Part(part.sample_ids.to_pylist(), part.labels, part.runs, part.features())

    def pieces(self, num_rows: int) -> Iterator[tuple[int, slice]]:
        """All rows, about so many at a time: a shard and rows of its part, not all of them there.

        The rows of a sample, one per augmentation run, are together. The system is asked to read
        the files of the next shards from disk meanwhile.
        """
        step = max(1, num_rows // self.runs) * self.runs
        starts = range(0, self.part_rows, step)
        expected = iter(range(self.num_parts))
        for shard in range(self.num_parts):
            for ahead in islice(expected, PARTS_AHEAD if shard == 0 else 1):
                expect_part(self.part_file(ahead))
            for start in starts:
                # The last is open, so that it does not matter how many rows a part really has.
                yield shard, slice(start, None if start == starts[-1] else start + step)

    def open_part(
        self,
        shard: int,
        columns: Sequence[str] = ("sample_id", "run"),
        rows: slice | None = None,
    ) -> OpenPart:
        """The part of one shard without its features, which can be read from it.

        Args:
            shard: Its number.
            columns: What to read besides the label, of `sample_id` and `run`.
            rows: Which rows, as far as they are there; None for all.

        Raises:
            FeatureStoreError: It is missing or damaged.
        """
        return open_part(self.part_file(shard), columns, rows)

    def bad_images(self) -> list[BadImage]:
        """What could not be read so far, in the order of the dataset.

        Raises:
            FeatureStoreError: A part is damaged.
        """
        missing, found = set(self.missing_parts()), []
        for shard in sorted(set(range(self.num_parts)) - missing):
            found += read_bad_images(self.part_file(shard))
        return found

    def write_errors(self, bad_images: Sequence[BadImage]) -> Path:
        """Writes `errors.parquet`: sample_id and reason of each image that could not be read."""
        table = pa.table(
            {
                "sample_id": [bad.sample_id for bad in bad_images],
                "reason": [bad.reason for bad in bad_images],
            },
            schema=ERRORS_SCHEMA,
        )
        path = self.folder / ERRORS_FILE
        with replacing(path) as temporary:
            pq.write_table(table, temporary, compression="zstd")
        return path


def create_store(
    folder: Path, description: Mapping[str, Any], *, resume: bool = True
) -> FeatureStore:
    """A store to write parts to: a new one, or one that an earlier run left incomplete.

    Args:
        folder: Made where it is not there.
        description: How the features are made.
        resume: Keep the parts of an earlier run; otherwise they are deleted first.

    Raises:
        FeatureStoreError: The earlier run was made otherwise, and the message names each
            difference; or the folder holds parts of something else.
    """
    store = FeatureStore(folder, json.loads(json.dumps(description)))
    path = folder / DESCRIPTION_FILE
    parts = sorted(folder.glob("part-*.parquet"))
    if path.exists() and resume:
        _require_same(folder, read_description(folder), store.description)
    elif parts and not path.exists():
        # Other programs name their files so, too: these are not ours to delete.
        raise FeatureStoreError(
            f"{folder} holds {parts[0].name} but no {DESCRIPTION_FILE}, so it is not a folder of "
            "features; use another --out"
        )
    else:
        for part in parts:
            part.unlink()
    remove_leftovers(folder)
    with replacing(path) as temporary:
        temporary.write_text(json.dumps(store.description, indent=1, sort_keys=True))
    return store


def open_store(folder: Path) -> FeatureStore:
    """A complete store.

    Raises:
        FeatureStoreError: It is not a store, or parts are missing.
    """
    store = FeatureStore(folder, read_description(folder))
    missing = store.missing_parts()
    if missing:
        raise FeatureStoreError(
            f"{folder} lacks {len(missing)} of {store.num_parts} parts, first "
            f"{store.part_file(missing[0]).name}; run `difficulty extract` again to complete it"
        )
    return store


def is_store(folder: Path) -> bool:
    """Whether a folder holds a feature store, complete or not."""
    return (folder / DESCRIPTION_FILE).is_file()


def read_description(folder: Path) -> Mapping[str, Any]:
    """What a store says of its features.

    Raises:
        FeatureStoreError: It is not a store, or its description is damaged.
    """
    path = folder / DESCRIPTION_FILE
    try:
        description: Mapping[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise FeatureStoreError(f"{folder} is not a feature store: it has no {path.name}") from None
    except ValueError as error:
        raise FeatureStoreError(f"{path} is damaged: {error}") from error
    return description


def _require_same(folder: Path, old: Mapping[str, Any], new: Mapping[str, Any]) -> None:
    if found := differences(old, new):
        raise FeatureStoreError(
            f"{folder} holds features that were made otherwise ({found}); "
            "use --no-resume to replace them, or another --out"
        )


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """What two descriptions do not share, of what they must; empty where they agree."""
    keys = sorted({*one, *other} - FREE_TO_CHANGE)
    return "; ".join(
        f"{key}: {_short(one.get(key))} then, {_short(other.get(key))} now"
        for key in keys
        if one.get(key) != other.get(key)
    )


def _short(value: object) -> str:
    text = json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."  # noqa: PLR2004
