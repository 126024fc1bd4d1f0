"""Features of earlier jobs, so that a job on images that its owner has sent before is quick.

Each finished extraction leaves its shards here, and each new one begins with those of the same
owner, backbone and settings. Nothing passes from one owner to another, not even the time that an
image takes. A file is a hard link, so that its deletion disturbs no job that has begun with it.
"""

import hashlib
import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from api.worker.retention import shrink
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import UNREADABLE, map_arrow
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.store import PREVIOUS_FOLDER, FeatureStore


@dataclass(frozen=True)
class FeatureCache:
    """A folder of shards of feature stores, of bounded size; several workers may use it at once."""

    folder: Path  # created where it does not exist
    max_bytes: int  # beyond which those not used for longest are deleted; 0 to keep nothing
    owner: str  # of the jobs; nothing of another owner is used

    def lend(self, store: FeatureStore) -> None:
        """Adds the features that a new store can use to its previous features."""
        target = store.folder / PREVIOUS_FOLDER
        if target.exists() or len(store.missing_shards()) < store.num_shards:
            return  # an attempt that is resumed, which has had them
        files = filter(_is_whole, sorted(self._place(store.description).glob("*.arrow")))
        for number, file in enumerate(files):
            target.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # another worker has deleted it
                _link(file, target / f"{number:05d}.arrow")
                os.utime(file)

    def keep(self, store: FeatureStore, name: str) -> None:
        """Takes the shards of a complete store, under a name that no other job has."""
        if not self.max_bytes:
            return
        place = self._place(store.description)
        place.mkdir(parents=True, exist_ok=True)
        for shard in range(store.num_shards):
            with suppress(FileExistsError):  # by an earlier attempt of the job
                _link(store.shard_file(shard), place / f"{name}-{shard:05d}.arrow")
        shrink(self.folder, self.max_bytes)

    def _place(self, description: FeatureDescription) -> Path:
        """The folder for features of one owner that are extracted in the same way."""
        named = json.dumps([self.owner, description.image_settings()], sort_keys=True)
        return self.folder / hashlib.sha256(named.encode()).hexdigest()


def _is_whole(file: Path) -> bool:
    """Whether a file can be read; one that cannot is deleted, or every later job would fail."""
    try:
        map_arrow(file)
    except UNREADABLE:
        file.unlink(missing_ok=True)
        return False
    return True


def _link(source: Path, target: Path) -> None:
    """A hard link, or a copy where the file system has no links."""
    try:
        os.link(source, target)
    except (FileExistsError, FileNotFoundError):
        raise
    except OSError:
        with replacing(target) as temporary:
            shutil.copyfile(source, temporary)
