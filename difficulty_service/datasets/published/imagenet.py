"""The validation images of ImageNet (ILSVRC 2012) as published: one folder, labels in a file.

https://image-net.org/challenges/LSVRC/2012/

The labels of ImageNet's validation images, from the files in which they are published.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import has_image_extension, open_each
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.published.mat_files import list_variables, read_variable
from difficulty_service.datasets.published.members import (
    MAX_BYTES,
    Member,
    damaged,
    read_lines,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import Entry, StoredPath, list_folder, reading, resolve

GROUND_TRUTH = "ILSVRC2012_validation_ground_truth.txt"
META = "meta.mat"
DEVKITS = ("ILSVRC2012_devkit_t12/data/", "devkit/data/", "data/", "")
SOLUTION = "LOC_val_solution.csv"
SYNSET_FILES = ("imagenet_2012_validation_synset_labels.txt", "val_synsets.txt")
FOLDERS_ABOVE = 4
"""The files of Kaggle have the images four folders below their labels."""

NUM_CLASSES = 1000


@dataclass(frozen=True)
class ImageNetLabels:
    """Labels of validation images.

    Attributes:
        by_number: Class index of each image by its number, where the file has no names.
        by_stem: Class index by the name of the image without its extension.
    """

    source: str
    class_names: tuple[str, ...]
    by_number: Sequence[int] = ()
    by_stem: dict[str, int] = field(default_factory=dict)


def find_labels(place: StoredPath, location: str) -> ImageNetLabels:
    """Finds the labels in the folder of the images or in the four above it, the nearest first."""
    folder = place
    for _ in range(1 + FOLDERS_ABOVE):
        labels = _labels_in(folder)
        if labels is not None:
            return labels
        folder = folder.parent
    raise DatasetError.of_location(
        f"{location!r} holds validation images of ImageNet, but no file with their labels is there "
        "or in the folders above",
        f"put there the folder {DEVKITS[0].split('/')[0]!r} of the development kit, Kaggle's "
        f"{SOLUTION!r}, or {SYNSET_FILES[1]!r} with a WordNet id for each image and line",
    )


def _labels_in(folder: StoredPath) -> ImageNetLabels | None:
    for name in (SOLUTION, *SYNSET_FILES):
        lines = read_lines(folder.join(name))
        if lines is not None:
            return _from_wordnet_ids(lines, name)
    for data in DEVKITS:
        lines = read_lines(folder.join(data + GROUND_TRUTH))
        if lines is not None:
            return _from_devkit(lines, _meta_in(folder.join(data.rstrip("/"))))
    return None


def _from_wordnet_ids(lines: list[str], source: str) -> ImageNetLabels:
    """Reads lines `wnid`, `name wnid` or, as Kaggle has them, `name,wnid x y x y …`."""
    parts = [line.replace(",", " ").split()[:2] for line in lines]
    if parts and parts[0][0] == "ImageId":
        parts = parts[1:]
    wordnet_ids = [words[-1] for words in parts]
    wrong = [each for each in wordnet_ids if not (each[:1] == "n" and each[1:].isdigit())]
    if wrong:
        raise damaged(source, f"{wrong[0]!r} is not a WordNet id such as 'n01440764'")
    class_names = tuple(sorted(set(wordnet_ids)))
    index = {name: label for label, name in enumerate(class_names)}
    labels = [index[wordnet_id] for wordnet_id in wordnet_ids]
    if all(len(words) == 1 for words in parts):
        return ImageNetLabels(source, class_names, by_number=labels)
    stems = (words[0].removesuffix(".JPEG") for words in parts)
    return ImageNetLabels(source, class_names, by_stem=dict(zip(stems, labels, strict=True)))


def _meta_in(folder: StoredPath) -> Member:
    with reading(f"the folder {folder.name!r}", "listed"):
        sizes = {name: size for name, is_dir, size in list_folder(folder) if not is_dir}
    if META not in sizes:
        raise DatasetError(
            f"there is no {META!r} beside {GROUND_TRUTH!r}",
            "put it there; it is in the same folder of the development kit",
        )
    return Member(META, folder.join(META), 0, sizes[META])


def _from_devkit(lines: list[str], meta: Member) -> ImageNetLabels:
    """Reads the numbers of classes, whose WordNet ids are in `meta.mat`."""
    wordnet_ids = _read_meta(meta)
    class_names = tuple(sorted(wordnet_ids.values()))
    index = {name: label for label, name in enumerate(class_names)}
    try:
        labels = [index[wordnet_ids[int(line)]] for line in lines]
    except (KeyError, ValueError) as error:
        raise damaged(GROUND_TRUTH, f"{error} is not the number of a class") from error
    return ImageNetLabels(GROUND_TRUTH, class_names, by_number=labels)


def _read_meta(file: Member) -> dict[int, str]:
    """WordNet id of each class by its number, 1 to 1000; larger numbers are groups of classes."""
    variable = list_variables(file).get("synsets")
    synsets = read_variable(file, variable, MAX_BYTES) if variable else []
    try:
        wordnet_ids = {int(each["ILSVRC2012_ID"].item()): each["WNID"] for each in synsets}
    except (TypeError, KeyError, AttributeError, ValueError, OverflowError) as error:
        raise damaged(META, "it does not hold the numbers and WordNet ids of classes") from error
    wordnet_ids = {number: name for number, name in wordnet_ids.items() if number <= NUM_CLASSES}
    if not wordnet_ids or not all(isinstance(name, str) for name in wordnet_ids.values()):
        raise damaged(META, "it does not hold the WordNet ids of classes")
    return wordnet_ids


IMAGE_NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")
SPLIT = "val"


def is_imagenet_validation(
    place: StoredPath, entries: list[Entry], split: str | None = None
) -> bool:
    """Whether a folder, or its sub-folder `val`, directly holds validation images of ImageNet."""
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

    The location is the folder of the images, or the one above if the split names the folder.
    """
    check_options(options, "ImageNet")
    place = resolve(location, options.boundary)
    with reading(repr(location), "listed"):
        entries = list_folder(place)
        if not _holds_images(entries):
            folders = {name for name, is_dir, _ in entries if is_dir}
            splits = sorted({"train", options.split or SPLIT} & folders)
            place = place.join(choose_split(splits, options.split, location))
            entries = list_folder(place)
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
    open_at = partial(open_each, place, names)
    return build_dataset(location, options, listing, open_at, names.__getitem__)


def _holds_images(entries: list[Entry]) -> bool:
    return any(IMAGE_NAME.fullmatch(name) for name, _, _ in entries)


def _label(labels: ImageNetLabels, name: str) -> int:
    """The class index of an image."""
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
