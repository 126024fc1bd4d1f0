"""One folder per class, images at any depth below it, local or remote."""

import os
from collections.abc import Hashable, Iterator
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.class_folders import Tree, find_class_folders, visible
from difficulty_service.datasets.image_openers import (
    has_image_extension,
    open_image,
    why_not_by_name,
)
from difficulty_service.datasets.listing import build_dataset, check_options
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
    found = find_class_folders(tree, location, options.split)
    return build_dataset(
        location, options, found.listing(), partial(_open_at, place, found.paths), found.describe
    )


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
    status = os.stat(place.join(folder).path)  # noqa: PTH116 - keeps odd names as they are
    return status.st_dev, status.st_ino


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
    raise ImageError(why_not_by_name(place.name))
