"""Tiny ImageNet as published: `train/n*/images/`, and `val/images/` with `val_annotations.txt`.

http://cs231n.stanford.edu/tiny-imagenet-200.zip
"""

import re
from collections import Counter
from functools import partial

import numpy as np

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import open_each
from difficulty_service.datasets.listing import Listing, as_text, build_dataset, check_options
from difficulty_service.datasets.published.members import damaged, read_lines
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import Entry, StoredPath, list_folder, reading, resolve

WORDNET_ID = re.compile(r"n\d{8}")
_ANNOTATION = re.compile(r"(\S+)\s+(n\d{8})(?!\S)")
WORDS_FILE, IDS_FILE, ANNOTATIONS_FILE = "words.txt", "wnids.txt", "val_annotations.txt"

Row = tuple[str, str, int]
"""Path below the root, WordNet id of the class, and size in bytes."""


def is_tiny_imagenet(place: StoredPath, entries: list[Entry]) -> bool:
    """Whether a folder is that of Tiny ImageNet, or its `train` or `val`."""
    names = {name for name, _, _ in entries}
    if {WORDS_FILE, IDS_FILE} <= names or (ANNOTATIONS_FILE in names and "images" in names):
        return True
    folders = [name for name, is_dir, _ in entries if is_dir]
    is_train = place.name == "train" and folders and all(map(WORDNET_ID.fullmatch, folders))
    return bool(is_train) and read_lines(place.parent.join(IDS_FILE)) is not None


def open_tiny_imagenet(location: str, options: DatasetOptions) -> Dataset:
    """Opens the training or validation images; classes are in the order of their WordNet ids.

    A class is called by its first word, followed by the WordNet id where two classes share it. Ids
    are paths below the folder of the dataset, whichever folder is given. The location may also be
    the `train` or `val` of the dataset.
    """
    check_options(options, "Tiny ImageNet")
    root, split = _choose_split(location, options)
    rows = _training_rows(root) if split == "train" else _validation_rows(root)
    listed = read_lines(root.join(IDS_FILE))
    wordnet_ids = sorted(set(listed if listed is not None else [each for _, each, _ in rows]))
    index = {wordnet_id: label for label, wordnet_id in enumerate(wordnet_ids)}
    unknown = next((row for row in rows if row[1] not in index), None)
    if unknown:
        raise DatasetError(
            f"{unknown[0]!r} is of class {unknown[1]!r}, which is not in {IDS_FILE!r}",
            "fetch the dataset again",
        )
    paths = [path for path, _, _ in rows]
    listing = Listing(
        _class_names(root, wordnet_ids),
        [as_text(path) for path in paths],
        np.array([index[wordnet_id] for _, wordnet_id, _ in rows], dtype=np.int32),
        sizes=np.array([size for _, _, size in rows], dtype=np.int64),
    )
    open_at = partial(open_each, root, paths)
    return build_dataset(location, options, listing, open_at, paths.__getitem__)


def _choose_split(location: str, options: DatasetOptions) -> tuple[StoredPath, str]:
    """The folder of the dataset, and the split."""
    place = resolve(location, options.boundary)
    names = {name for name, _, _ in _list(place)}
    if IDS_FILE in names:
        splits = [name for name in ("train", "val") if name in names]
        return place, choose_split(splits, options.split, location)
    split = "val" if ANNOTATIONS_FILE in names else "train"
    return place.parent, choose_split([split], options.split, location)


def _training_rows(root: StoredPath) -> list[Row]:
    rows = []
    for wordnet_id in sorted(name for name, is_dir, _ in _list(root.join("train")) if is_dir):
        folder = f"train/{wordnet_id}/images"
        images = _visible_files(_list(root.join(folder)))
        rows += [(f"{folder}/{name}", wordnet_id, size) for name, size in images.items()]
    return rows


def _validation_rows(root: StoredPath) -> list[Row]:
    """The images in the order of the annotations; one whose file is missing fails to open."""
    lines = read_lines(root.join(f"val/{ANNOTATIONS_FILE}"))
    if lines is None:
        raise DatasetError(
            f"{ANNOTATIONS_FILE!r}, which has the labels, is missing or cannot be read",
            "put it into the folder `val`",
        )
    matches = [_ANNOTATION.match(line) for line in lines]
    if None in matches:
        line = lines[matches.index(None)]
        raise damaged(ANNOTATIONS_FILE, f"{line!r} is not a file and a WordNet id")
    wordnet_ids = {match[1]: match[2] for match in matches if match}
    sizes = _visible_files(_list(root.join("val/images")))
    unlabelled = sorted(sizes.keys() - wordnet_ids.keys())
    if unlabelled:
        raise damaged(
            ANNOTATIONS_FILE,
            f"it has no label for {len(unlabelled)} images, first {unlabelled[0]!r}",
        )
    return [
        (f"val/images/{name}", wordnet_id, sizes.get(name, 0))
        for name, wordnet_id in wordnet_ids.items()
    ]


def _visible_files(entries: list[Entry]) -> dict[str, int]:
    """Size by name, in the order of the names."""
    return {name: size for name, is_dir, size in sorted(entries) if not is_dir and name[:1] != "."}


def _list(folder: StoredPath) -> list[Entry]:
    with reading(f"the folder {folder.name!r}", "listed"):
        return list_folder(folder)


def _class_names(root: StoredPath, wordnet_ids: list[str]) -> tuple[str, ...]:
    lines = read_lines(root.join(WORDS_FILE)) or []
    words = dict(line.split("\t", 1) for line in lines if "\t" in line)
    names = [words.get(each, each).split(",")[0].strip() for each in wordnet_ids]
    counts = Counter(names)
    return tuple(
        name if counts[name] == 1 else f"{name} ({wordnet_id})"
        for name, wordnet_id in zip(names, wordnet_ids, strict=True)
    )
