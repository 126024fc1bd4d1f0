"""Datasets with one folder per class and images at any depth below it, local or remote."""

import os
from collections.abc import Hashable, Iterator
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.datasets.class_folders import Tree, find_class_folders, visible
from difficulty_service.datasets.image_openers import (
    extension_problem,
    has_image_extension,
    open_image,
)
from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.sample import Dataset, DatasetOptions, FileOpener, ImageOpener
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    is_folder,
    list_folder,
    list_tree,
    resolve,
)


def open_image_folder(location: str, options: DatasetOptions) -> Dataset:
    """Opens a folder whose sub-folders are the classes, sorted by name.

    Args:
        location: The folder; with a split, the folder that contains the folders of the splits.
        options: Options, of which the split, the limit and the shard size apply.

    Raises:
        DatasetError: The folder does not exist, has no class folders or no files in them, or it
            has splits and none is chosen.
    """
    unused = ("image_column", "label_column", "id_column")
    check_options(options, "a folder of class folders", unused)
    place = resolve(location, options.boundary)
    if not is_folder(place, location):
        raise DatasetError(
            f"{location!r} does not exist or is not a folder",
            "check the path or URI",
            parameter="location",
        )
    tree = _tree(place, location)
    folders = find_class_folders(tree, location, options.split)
    open_at = partial(_open_at, place, folders.paths)
    return build_dataset(location, options, folders.listing(), open_at, folders.describe)


def _tree(place: StoredPath, location: str) -> Tree:
    if place.is_local:
        return Tree(partial(_scan_local, place), partial(_local_identity, place))
    try:
        folders = list_tree(place)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be listed: {error}") from error
    return Tree(lambda folder: visible(folders.get(folder, [])), lambda folder: folder)


def _scan_local(place: StoredPath, folder: str) -> list[Entry]:
    return visible(list_folder(place.join(folder)))


def _local_identity(place: StoredPath, folder: str) -> Hashable:
    status = os.stat(place.join(folder).path)  # noqa: PTH116 - keeps names that are not UTF-8
    return status.st_dev, status.st_ino


def _open_at(
    place: StoredPath, paths: list[str], positions: NDArray[np.int64]
) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        entry = place.join(paths[position])
        opener = partial(_open_entry, entry)
        yield FileOpener(entry.path, opener) if entry.is_local else opener


def _open_entry(place: StoredPath) -> BinaryIO:
    """Opens one entry of a class folder.

    Raises:
        ImageError: The entry is not an image file, or cannot be read.
    """
    if has_image_extension(place.name):
        return open_image(place)
    if place.is_local:  # opening a pipe or an empty folder raises a more specific reason
        open_image(place).close()
    raise ImageError(extension_problem(place.name))
