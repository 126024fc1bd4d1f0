"""One folder per class, images at any depth below it.

Nothing is dropped silently: whatever lies in a class folder is a sample, also what cannot be an
image, which then says why when it is opened. Only hidden files and the droppings of file
managers are left out.
"""

import os
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.image_openers import has_image_extension, open_image
from difficulty_service.datasets.listing import Listing, as_text, build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    list_folder,
    list_tree,
    resolve,
)
from difficulty_service.errors import DatasetError, ImageError

_LEFT_OUT = frozenset(("Thumbs.db", "desktop.ini"))
_SPLIT_NAMES = frozenset(
    ("train", "training", "val", "valid", "validation", "test", "testing", "dev", "eval"),
)


@dataclass(frozen=True)
class _Tree:
    """The folders below a location, by their paths relative to it.

    Attributes:
        scan: What is directly in a folder, hidden entries left out; may raise OSError.
        identity: Equal for two paths that lead to the same folder.
    """

    scan: Callable[[str], list[Entry]]
    identity: Callable[[str], Hashable]


def open_image_folder(location: str, options: DatasetOptions) -> Dataset:
    """Opens a folder whose sub-folders are the classes, sorted by name.

    Args:
        location: The folder, or with a split the folder that holds the splits' folders.
        options: Split, limit and shard size are used.

    Raises:
        DatasetError: It is not there, holds no class folder, an empty one, images outside any
            class, or splits although none is chosen.
    """
    unused = ("image_column", "label_column", "id_column")
    check_options(options, "a folder of class folders", unused)
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        raise DatasetError(f"{location!r} is not there or is no folder; check the path or URI")
    tree = _tree(place, location)
    folders = _class_folders(tree, location, options.split)
    paths, labels, sizes = [], [], []
    for label, folder in enumerate(folders):
        found = sorted(_walk(tree, folder))
        if not found:
            raise DatasetError(
                f"the class folder {folder!r} of {location!r} is empty; remove it or fill it"
            )
        paths += [path for path, _ in found]
        sizes += [size for _, size in found]
        labels.append(np.full(len(found), label, dtype=np.int32))
    listing = Listing(
        class_names=tuple(as_text(folder.rpartition("/")[2]) for folder in folders),
        sample_ids=[as_text(path) for path in paths],
        labels=np.concatenate(labels),
        sizes=np.array(sizes, dtype=np.int64),
    )
    return build_dataset(
        location, options, listing, partial(_open_at, place, paths), lambda i: repr(paths[i])
    )


def _tree(place: StoredPath, location: str) -> _Tree:
    if place.is_local:
        return _Tree(partial(_scan_local, place), partial(_local_identity, place))
    try:
        folders = list_tree(place)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be listed: {error}") from error
    return _Tree(lambda folder: _visible(folders.get(folder, [])), lambda folder: folder)


def _scan_local(place: StoredPath, folder: str) -> list[Entry]:
    return _visible(list_folder(place.join(folder)))


def _local_identity(place: StoredPath, folder: str) -> Hashable:
    status = os.stat(place.join(folder).path)  # noqa: PTH116 - keeps odd names as they are
    return status.st_dev, status.st_ino


def _visible(entries: list[Entry]) -> list[Entry]:
    return [e for e in entries if not e[0].startswith(".") and e[0] not in _LEFT_OUT]


def _class_folders(tree: _Tree, location: str, split: str | None) -> list[str]:
    """Class folders relative to the location, sorted.

    Raises:
        DatasetError: The layout is not one folder per class.
    """
    top = _scan_top(tree, location, "")
    prefix = ""
    if split is not None:
        names = sorted(name for name, folder, _ in top if folder)
        if split not in names:
            raise DatasetError(f"{location!r} has no sub-folder {split!r}; it has {names[:20]}")
        top, prefix = _scan_top(tree, location, split), f"{split}/"
    folders = sorted(name for name, folder, _ in top if folder and not has_image_extension(name))
    files = sorted(name for name, folder, _ in top if not folder)
    images = [name for name in files if has_image_extension(name)]
    where = f"{location!r}, split {split!r}," if split else repr(location)
    if not folders:
        raise DatasetError(
            f"{where} has no class folders, only {files[:5]}; expected one sub-folder per class, "
            "or give the table or tar file itself"
        )
    if images:
        raise DatasetError(
            f"{where} has the image {images[0]!r} outside any class folder; move it into its class"
        )
    if split is None:
        _refuse_unchosen_splits(tree, location, folders)
    return [prefix + folder for folder in folders]


def _scan_top(tree: _Tree, location: str, folder: str) -> list[Entry]:
    try:
        return tree.scan(folder)
    except OSError as error:
        raise DatasetError(f"{location!r} cannot be listed: {error}") from error


def _refuse_unchosen_splits(tree: _Tree, location: str, folders: list[str]) -> None:
    if all(name.lower() in _SPLIT_NAMES for name in folders) and all(
        any(folder for _, folder, _ in _scan_top(tree, location, name)) for name in folders
    ):
        raise DatasetError(
            f"{location!r} holds the splits {folders}, not classes; "
            f"choose one, for example --split {folders[0]}"
        )


def _walk(tree: _Tree, class_folder: str) -> list[tuple[str, int]]:
    """Path and size of everything in a class folder that is not a folder with content.

    Args:
        tree: Lists folders.
        class_folder: Where to start.

    Raises:
        DatasetError: The class folder cannot be listed.
    """
    found: list[tuple[str, int]] = []
    pending = [(class_folder, frozenset([tree.identity("")]))]
    while pending:
        folder, above = pending.pop()
        entries, identity = _scan_once(tree, folder, above)
        if not entries and folder != class_folder:
            found.append((folder, 0))
        for name, is_dir, size in entries:
            path = f"{folder}/{name}"
            if is_dir and not has_image_extension(name):
                pending.append((path, above | {identity}))
            else:
                found.append((path, size))
    return found


def _scan_once(
    tree: _Tree, folder: str, above: frozenset[Hashable]
) -> tuple[list[Entry], Hashable]:
    """Entries and identity of a folder; none for one that holds itself or is unreadable."""
    try:
        identity = tree.identity(folder)
        return ([] if identity in above else tree.scan(folder)), identity
    except OSError:  # listed as an entry without content; opening it gives the reason
        return [], None


def _open_at(
    place: StoredPath, paths: list[str], positions: NDArray[np.int64]
) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        yield partial(_open_entry, place.join(paths[position]))


def _open_entry(place: StoredPath) -> BinaryIO:
    """Opens one entry of a class folder.

    Raises:
        ImageError: It is no image file, or cannot be read.
    """
    if has_image_extension(place.name):
        return open_image(place)
    if place.is_local:  # a pipe or an empty folder has a better reason than its extension
        open_image(place).close()
    extension = os.path.splitext(place.name)[1]  # noqa: PTH122
    raise ImageError(
        f"not an image file by its extension {extension!r}"
        if extension
        else "not an image file: its name has no extension"
    )
