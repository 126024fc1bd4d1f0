"""Labelled images as people hold them in Python, opened as datasets."""

import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.hugging_face import choose_split, open_rows
from difficulty_service.datasets.listing import check_options
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.storage import resolve
from difficulty_service.features.array_columns import ClassLabels, index_classes
from difficulty_service.interface.arrays import to_column

LabelledImages = Any
"""A path or URI, a `datasets.Dataset`, a map-style Dataset of torch, or a sequence of pairs."""

PAIR = 2


def open_images(images: LabelledImages, options: DatasetOptions) -> tuple[Dataset, list[str]]:
    """Opens any LabelledImages, and says in sentences which of them cannot be used.

    The columns of the options apply to tables, and the split to named splits.
    """
    if isinstance(images, str | os.PathLike):
        return open_dataset(os.fspath(images), options), []
    package = sys.modules.get("datasets")
    if package is not None and isinstance(images, package.DatasetDict):
        images = images[choose_split(list(images), options.split, "the DatasetDict")]
    if package is not None and isinstance(images, package.Dataset):
        return open_rows(images, resolve("."), "a Hugging Face dataset in memory", options), []
    if options.text_column not in (None, "text"):
        check_options(options, "pairs of texts and labels", ("text_column",))
    if not hasattr(images, "__len__") or not hasattr(images, "__getitem__"):
        raise DatasetError(
            f"an object of type {type(images).__name__} has no length or no elements by position",
            "pass a path, a list of pairs, a map-style Dataset of torch or a `datasets.Dataset`",
            parameter="images",
        )
    unused = ("split", "image_column", "label_column", "id_column")
    check_options(options, "pairs of images and labels", unused)
    return _of_pairs(images, options)


def is_pairs(images: LabelledImages) -> bool:
    """Whether an object is a collection of pairs, neither a path nor a Hugging Face dataset."""
    package = sys.modules.get("datasets")
    kinds = (str, os.PathLike) if package is None else (str, os.PathLike, package.Dataset, dict)
    return not isinstance(images, kinds)


def _of_pairs(pairs: Any, options: DatasetOptions) -> tuple[Dataset, list[str]]:  # noqa: ANN401
    classes = _classes(pairs)
    kept = np.flatnonzero(classes.indices.numpy() >= 0)
    unlabelled = len(classes.indices) - len(kept)
    warnings = [f"{unlabelled:,} of {len(pairs):,} images are left out: they have no label"]
    in_memory = ImagesInMemory(
        _reader(pairs, kept.tolist()),
        _sample_ids(pairs, kept.tolist(), options.modality),
        classes.indices.numpy()[kept].astype(np.int32),
        classes.names,
    )
    location = f"{type(pairs).__name__} in memory"
    return open_memory(in_memory, location, options), warnings if unlabelled else []


def _reader(pairs: Any, kept: Sequence[int]) -> Callable[[int], object]:  # noqa: ANN401
    """Reads one image at a time: datasets of other people need not be thread-safe."""
    lock = threading.Lock()

    def read_image(position: int) -> object:
        if isinstance(pairs, list | tuple):
            return pairs[kept[position]][0]
        with lock:
            return pairs[kept[position]][0]

    return read_image


def _classes(pairs: Any) -> ClassLabels:  # noqa: ANN401
    """Labels from the attribute `targets` of torchvision, otherwise from every element."""
    targets = getattr(pairs, "targets", None)
    if targets is None or len(targets) != len(pairs) or getattr(pairs, "target_transform", None):
        targets = [_label(pairs[position], position) for position in range(len(pairs))]
    classes = index_classes(to_column(targets, "labels"))
    names = getattr(pairs, "classes", None)
    if names is None or not all(name.isdecimal() for name in classes.names):
        return classes
    if any(int(name) >= len(names) for name in classes.names):
        return classes
    return ClassLabels(tuple(str(names[int(name)]) for name in classes.names), classes.indices)


def _label(pair: Any, position: int) -> object:  # noqa: ANN401
    if not isinstance(pair, list | tuple) or len(pair) != PAIR:
        raise DatasetError(
            f"element {position} is {type(pair).__name__}, expected a pair of an image and a label",
            parameter="images",
        )
    label = pair[1]
    return label.item() if hasattr(label, "item") else label


def _sample_ids(pairs: Any, kept: Sequence[int], modality: str) -> list[str]:  # noqa: ANN401
    """The paths of a list of paths if they differ, otherwise the positions."""
    if modality == "image" and isinstance(pairs, list | tuple):
        images = [pairs[position][0] for position in kept]
        if all(isinstance(image, str | os.PathLike) for image in images):
            paths = [str(image) for image in images]
            if len(set(paths)) == len(paths):
                return paths
    return [str(position) for position in kept]
