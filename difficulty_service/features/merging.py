"""Joins the shards of a feature store that several runs extracted."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.base.files import temporary_path
from difficulty_service.features.description import read_description
from difficulty_service.features.errors_file import read_errors, write_errors
from difficulty_service.features.previous import sole_writer
from difficulty_service.features.store import FeatureStore, create_store


def merge_stores(folders: Sequence[Path], out: Path) -> FeatureStore:
    """One store of the shards that several runs extracted from the same dataset.

    Shards are hard-linked where the file system can do so, so that terabytes need not be copied. A
    shard that several stores hold is the same in all of them, and is taken from the first.
    """
    stores = [FeatureStore(folder, read_description(folder)) for folder in folders]
    first = stores[0]
    for store in stores[1:]:
        _require_same_settings(first, store)
    holders = {
        shard: store
        for store in reversed(stores)
        for shard in set(range(first.num_shards)) - set(store.missing_shards())
    }
    missing = [shard for shard in range(first.num_shards) if shard not in holders]
    if missing:
        raise FeatureStoreError(
            f"{len(missing)} of {first.num_shards} shards are in none of the stores, the first is "
            f"{first.shard_file(missing[0]).name}",
            "finish the runs that extract them, or name their stores too",
        )
    with sole_writer(out):
        merged = create_store(out, first.description)
        for shard in merged.missing_shards():
            _link_or_copy(holders[shard].shard_file(shard), merged.shard_file(shard))
        bad_images = merged.bad_images()
        # Each run also listed what was skipped before there were shards.
        listed = dict.fromkeys(error for store in stores for error in read_errors(store.folder))
        unreadable = {(bad.sample_id, bad.reason) for bad in bad_images}
        skipped = [error for error in listed if (error.sample_id, error.reason) not in unreadable]
        write_errors(out, [*skipped, *bad_images])
    return merged


def _require_same_settings(first: FeatureStore, second: FeatureStore) -> None:
    names = (f"in {first.folder}", f"in {second.folder}")
    different = first.description.store_differences(second.description, names=names)
    if different:
        raise FeatureStoreError(
            f"{first.folder} and {second.folder} were extracted with different settings "
            f"({'; '.join(different)})"
        )


def _link_or_copy(source: Path, target: Path) -> None:
    temporary = temporary_path(target)
    try:
        try:
            os.link(source, temporary)
        except OSError:  # another disk, or a file system without links
            shutil.copyfile(source, temporary)
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)
