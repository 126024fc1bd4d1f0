"""The validation images of ImageNet (ILSVRC 2012) as published: one folder, labels in a file.

https://image-net.org/challenges/LSVRC/2012/
"""

import re
from collections.abc import Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.image_openers import has_image_extension, open_image
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.published.imagenet_labels import Labels, find_labels
from difficulty_service.datasets.published.splits import choose_split
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.storage import Entry, StoredPath, list_folder, resolve
from difficulty_service.errors import DatasetError

IMAGE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")
SPLIT = "val"


def is_imagenet_validation(
    place: StoredPath, entries: list[Entry], split: str | None = None
) -> bool:
    """Whether a folder, or its sub-folder `val`, directly holds validation images of ImageNet.

    Args:
        place: The folder.
        entries: Its entries.
        split: Sub-folder to look into; None for `val`.
    """
    if _holds_images(entries):
        return True
    name = split or SPLIT
    if not any(entry[:2] == (name, True) for entry in entries):
        return False
    try:
        return _holds_images(list_folder(place.join(name)))
    except (OSError, ValueError):
        return False


def open_imagenet_validation(location: str, options: DatasetOptions) -> Dataset:
    """Opens the validation images; the classes are WordNet ids, like the folders of `train`.

    Args:
        location: The folder of the images, or the one above if the split names the folder.
        options: Options, of which the split, the limit and the shard size apply.

    Raises:
        DatasetError: No labels are found, an image has none, or there are several splits and none
            is chosen.
    """
    check_options(options, "ImageNet", ("image_column", "label_column", "id_column"))
    place = resolve(location, options.boundary)
    try:
        entries = list_folder(place)
        if not _holds_images(entries):
            folders = {name for name, is_dir, _ in entries if is_dir}
            splits = sorted({"train", options.split or SPLIT} & folders)
            place = place.join(choose_split(splits, options.split, location))
            entries = list_folder(place)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be listed: {error}") from error
    sizes = {
        name: size
        for name, is_dir, size in sorted(entries)
        if not is_dir and has_image_extension(name)
    }
    labels = find_labels(place, location)
    names = list(sizes)
    listing = Listing(
        labels.class_names,
        names,
        np.array([_label(labels, name) for name in names], dtype=np.int32),
        sizes=np.array(list(sizes.values()), dtype=np.int64),
    )
    open_at = partial(_open_at, place, names)
    return build_dataset(location, options, listing, open_at, names.__getitem__)


def _holds_images(entries: list[Entry]) -> bool:
    return any(IMAGE_NAME.fullmatch(name) for name, _, _ in entries)


def _label(labels: Labels, name: str) -> int:
    """The class index of an image.

    Raises:
        DatasetError: The labels do not have the image.
    """
    match = IMAGE_NAME.fullmatch(name)
    label = labels.by_stem.get(name.rpartition(".")[0])
    if label is None and match and 0 < int(match[1]) <= len(labels.by_number):
        label = labels.by_number[int(match[1]) - 1]
    if label is None:
        raise DatasetError(
            f"{labels.source!r} has no label for the image {name!r}",
            "fetch it again, or remove the image",
        )
    return label


def _open_at(
    place: StoredPath, names: list[str], positions: NDArray[np.int64]
) -> Iterator[ImageOpener]:
    for position in positions.tolist():
        yield partial(open_image, place.join(names[position]))
