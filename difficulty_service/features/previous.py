"""Features of earlier runs, of which the shards of a changed dataset are put together.

They lie in the folder `previous` of a store, and what a stopped run has extracted of a shard joins
them when it is resumed. When the dataset has changed, the shards are moved there before anything
else, so that the store is incomplete until all new ones are written. At the end, features that are
in a shard again are deleted there; those of images that left the dataset stay.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import torch
from filelock import FileLock, Timeout
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import FeatureStoreError, Setting
from difficulty_service.base.files import NO_LOCKS, remove_leftovers
from difficulty_service.base.tables import to_arrow
from difficulty_service.features.description import FeatureDescription, is_store, read_description
from difficulty_service.features.known_images import (
    ImageList,
    KnownImages,
    index_images,
    join_images,
)
from difficulty_service.features.shard import (
    join_appearance,
    open_shard,
    read_appearance,
    read_bad_images,
)
from difficulty_service.features.shard_images import bad_images_list, keep_images, read_images
from difficulty_service.features.store import (
    PREVIOUS_FILES,
    PREVIOUS_FOLDER,
    SHARD_FILES,
    UNFINISHED_FILES,
    FeatureStore,
    create_store,
)

LOCK_FILE = ".lock"


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keeps other commands from writing features to a folder meanwhile.

    The system frees the lock of a process that ends, however it ends. A file system without locks
    lets every command write. The folder is created where it does not exist.
    """
    if folder.exists() and not folder.is_dir():
        raise FeatureStoreError(
            f"{folder} is a file, but features are kept in a folder",
            "use another ",
            Setting("out"),
            parameter="out",
        )
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FeatureStoreError(
            f"another command is writing features to {folder}",
            "wait for it, or use another ",
            Setting("out"),
            parameter="out",
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()


@dataclass(frozen=True)
class Reuse:
    """Numbers of images that were new, and of those that left the dataset and are kept."""

    num_new: int
    num_left_over: int


@dataclass(frozen=True)
class PreviousFeatures:
    """Features of images that an earlier run has read.

    Attributes:
        starts: Number of images before each file. Shape (files,).
    """

    files: Sequence[Path]
    starts: NDArray[np.int64]
    runs: int
    known: KnownImages

    def read_features(self, rows: NDArray[np.int64]) -> Tensor:
        """Features of one or more rows of the index. Shape (images * runs, dim)."""
        open_file = cache(partial(open_shard, columns=[]))
        pieces = [
            open_file(self.files[file]).read_features(of_part)
            for file, of_part in self._pieces(np.sort(rows))
        ]
        ascending = torch.cat(pieces).view(len(rows), self.runs, -1)
        places = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
        return ascending[torch.from_numpy(places)].flatten(0, 1)

    def read_appearance(self, rows: NDArray[np.int64]) -> pa.StructArray | None:
        """How the images of one or more rows of the index look, as `read_features`."""
        pieces = list(self._pieces(np.sort(rows)))
        ascending = join_appearance(
            [read_appearance(self.files[file], of_part) for file, of_part in pieces],
            [of_part.stop - of_part.start for _, of_part in pieces],
        )
        if ascending is None:
            return None
        places = np.argsort(np.argsort(rows, kind="stable"), kind="stable")
        of_runs = places[:, None] * self.runs + np.arange(self.runs)
        return ascending.take(to_arrow(of_runs.ravel()))

    def _pieces(self, rows: NDArray[np.int64]) -> Iterator[tuple[int, slice]]:
        """Ascending rows as files and slices of their shards."""
        files = np.searchsorted(self.starts, rows, side="right") - 1
        breaks = np.flatnonzero((np.diff(rows) != 1) | (np.diff(files) != 0)) + 1
        for begin, end in zip([0, *breaks.tolist()], [*breaks.tolist(), len(rows)], strict=True):
            file = int(files[begin])
            first = int(rows[begin] - self.starts[file])
            yield file, slice(first * self.runs, (first + end - begin) * self.runs)


@contextmanager
def writable_store(
    folder: Path, description: FeatureDescription, *, resume: bool = True
) -> Iterator[FeatureStore]:
    """The store of `prepare_store`, to which no other command writes meanwhile.

    Raises:
        FeatureStoreError: As for `prepare_store`; or another command is writing to the folder.
    """
    with sole_writer(folder):
        yield prepare_store(folder, description, resume=resume)


def prepare_store(
    folder: Path, description: FeatureDescription, *, resume: bool = True
) -> FeatureStore:
    """As `create_store`, but features of a dataset that has changed since are set aside."""
    if resume and is_store(folder):
        store = FeatureStore(folder, description)
        before = read_description(folder)
        changed = before.store_differences(description) or _has_changed_files(before, description)
        if changed and not before.store_differences(description, other_dataset=True):
            set_aside(store, sorted(folder.glob(SHARD_FILES)))
            store.write_description()  # last, so that whatever it describes is new
    return create_store(folder, description, resume=resume)


def _has_changed_files(before: FeatureDescription, now: FeatureDescription) -> bool:
    """Whether the files of a dataset were written again, whose sizes may be the same."""
    stamps = before.containers, now.containers
    return None not in stamps and stamps[0] != stamps[1]  # those of files elsewhere are not known


def set_aside(store: FeatureStore, files: Sequence[Path]) -> None:
    """Moves shards of a store to its previous features, so that they are put together again."""
    if not files:
        return
    folder = store.folder / PREVIOUS_FOLDER
    folder.mkdir(exist_ok=True)
    first = max((int(path.stem) for path in folder.glob(PREVIOUS_FILES)), default=-1) + 1
    for number, file in enumerate(files, first):
        file.rename(folder / f"{number:05d}.arrow")


def open_previous(store: FeatureStore) -> PreviousFeatures | None:
    """The features of earlier runs that are in no shard; None if there are none."""
    if unfinished := sorted(store.folder.glob(UNFINISHED_FILES)):
        set_aside(store, unfinished)
    remove_leftovers(store.folder / PREVIOUS_FOLDER)
    files = previous_files(store)
    if not files:
        return None
    lists = [_images(store, file) for file in files]
    bad = [bad for file in files for bad in read_bad_images(file) if bad.content]
    lengths = np.array([len(each.contents) for each in lists])
    images = join_images([*lists, bad_images_list(bad, with_ids=store.has_augmentation)])
    known = index_images(images, [each.reason for each in bad])
    return PreviousFeatures(files, np.cumsum(lengths) - lengths, store.runs, known)


def delete_reused(store: FeatureStore) -> int:
    """Deletes previous features that are in a shard again; the number of images that stay."""
    present = set(range(store.num_shards)) - set(store.missing_shards())
    shards = [store.shard_file(shard) for shard in sorted(present)]
    keys = [_images(store, shard).content_keys() for shard in shards]
    in_shards = np.unique(np.concatenate(keys))
    num_unused = 0
    for file in previous_files(store):
        unused = ~np.isin(_images(store, file).content_keys(), in_shards)
        if not unused.any():
            file.unlink()
        elif not unused.all():
            keep_images(file, unused, store.runs)
        num_unused += int(unused.sum())
    folder = store.folder / PREVIOUS_FOLDER
    if not any(folder.iterdir()):
        folder.rmdir()
    return num_unused


def previous_files(store: FeatureStore) -> list[Path]:
    """The files of previous features, in the order in which they were set aside."""
    return sorted((store.folder / PREVIOUS_FOLDER).glob(PREVIOUS_FILES))


def _images(store: FeatureStore, file: Path) -> ImageList:
    return read_images(file, store.runs, with_ids=store.has_augmentation)
