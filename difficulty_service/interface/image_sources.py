"""Labelled images as people hold them in Python, opened as datasets."""

import os
import re
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.class_names import name_numbered
from difficulty_service.datasets.hugging_face import open_rows
from difficulty_service.datasets.labels import (
    LABEL_NAMES,
    find_usual,
    label_like,
    several_labels_warning,
)
from difficulty_service.datasets.listing import check_options, without_labels
from difficulty_service.datasets.memory import ImagesInMemory, open_memory
from difficulty_service.datasets.sample import UNLABELLED, Dataset, DatasetOptions
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import resolve
from difficulty_service.datasets.table_columns import IMAGE_NAMES, or_texts
from difficulty_service.interface.image_labels import classes_of_pairs
from difficulty_service.interface.tables import (
    Column,
    is_arrow,
    is_data_frame,
    is_hugging_face,
    is_of,
    is_pandas,
    read_arrow,
    refuse_lazy,
    require_one_order,
    to_table,
)

LabelledImages = Any
"""A path or URI, a `datasets.Dataset`, a map-style Dataset of torch, a sequence of pairs, or a
table as `difficulty_service.interface.tables.Frame`."""


def open_images(images: LabelledImages, options: DatasetOptions) -> tuple[Dataset, list[str]]:
    """Opens any LabelledImages, and says in sentences which of them cannot be used.

    The columns of the options apply to tables, and the split to named splits. Where labels are
    ignored, images without any will do.
    """
    if options.unlabelled and is_pairs(images) and not is_frame(images) and len(images):
        alone = not isinstance(images[0], list | tuple)
        images = _without_labels(images) if alone else images
    dataset, warnings = _open(images, options)
    if options.unlabelled:
        return without_labels(dataset), warnings
    if not isinstance(images, str | os.PathLike):  # else it has them already
        dataset = name_numbered(dataset, options.class_names)
    return dataset, warnings


def _open(images: LabelledImages, options: DatasetOptions) -> tuple[Dataset, list[str]]:
    if isinstance(images, str | os.PathLike):
        return open_dataset(os.fspath(images), options), []
    package = sys.modules.get("datasets")
    if package is not None and isinstance(images, package.DatasetDict):
        images = images[choose_split(list(images), options.split, "the DatasetDict")]
    if package is not None and isinstance(images, package.Dataset):
        return open_rows(images, resolve("."), "a Hugging Face dataset in memory", options), []
    _refuse_streams(images, package)
    refuse_lazy(images, "images")
    if is_frame(images):
        pairs, guesses = _pairs_of_frame(images, options)
        dataset, warnings = _of_pairs(pairs, options)
        return dataset, [*guesses, *warnings]
    if options.text_column not in (None, "text"):
        check_options(options, "pairs of texts and labels", ("text_column",))
    if not hasattr(images, "__len__") or not hasattr(images, "__getitem__"):
        is_loader = hasattr(images, "dataset") and hasattr(images, "batch_size")
        raise DatasetError(
            f"an object of type {type(images).__name__} has no length or no elements by position",
            "pass the `dataset` of that loader"
            if is_loader
            else "pass a path, a list of pairs, such as `list(pairs)` of what yields them, a "
            "map-style Dataset of torch or a `datasets.Dataset`",
            parameter="images",
        )
    unused = ("split", "image_column", "label_column", "id_column")
    check_options(options, "pairs of images and labels", unused)
    return _of_pairs(images, options)


def _refuse_streams(images: LabelledImages, package: Any) -> None:  # noqa: ANN401
    """Refuses what `datasets` streams, which is read once and has no length."""
    if package is None or not isinstance(
        images, package.IterableDataset | package.IterableDatasetDict
    ):
        return
    raise DatasetError(
        f"an object of type {type(images).__name__} is streamed, and has no length or no elements "
        "by position",
        "load it without `streaming=True`, or make a `datasets.Dataset` of its rows, such as by "
        "`datasets.Dataset.from_list(list(rows.take(10_000)), features=rows.features)`",
        parameter="images",
    )


def images_of(images: LabelledImages | None) -> str | Dataset | None:
    """The images of a report: the location of a dataset, or what a program holds, opened."""
    if images is None or isinstance(images, str | os.PathLike):
        return None if images is None else os.fspath(images)
    return open_images(images, DatasetOptions())[0]


LOOKED_AT = 10
"""Number of elements of a list by which texts are told from paths."""


@dataclass(frozen=True)
class Zipped:
    """Images and their labels in two objects, as pairs.

    Attributes:
        targets: The label of each image.
        ids: The ids of the images; None for their paths or positions.
    """

    images: Any
    targets: Any
    ids: Sequence[str] | None = None

    def __len__(self) -> int:
        """Number of images."""
        return len(self.images)

    def __getitem__(self, position: int) -> tuple[object, object]:
        """An image and its label."""
        return self.images[position], self.targets[position]


def zip_labels(images: LabelledImages, labels: Column) -> Zipped:
    """Pairs of images and labels that are in two objects, such as arrays or Series.

    Raises:
        DatasetError: There are not as many labels as images, or `images` has labels of its own.
    """
    require_one_order(images, labels, "images", "labels")
    images, labels = _elements_of(images), _elements_of(labels)
    has_labels = isinstance(images, str | os.PathLike) or not is_pairs(images) or is_frame(images)
    if has_labels or not hasattr(images, "__len__") or not hasattr(labels, "__len__"):
        raise DatasetError(
            f"labels are given beside images that are of type {type(images).__name__}",
            "pass an array or a list of images with as many labels, or a path or table alone",
            parameter="labels",
        )
    if len(images) != len(labels):
        raise DatasetError(
            f"there are {len(images):,} images and {len(labels):,} labels",
            "pass one label for each image",
            parameter="labels",
        )
    return Zipped(_by_position(images), _by_position(labels))


def _elements_of(values: Any) -> Any:  # noqa: ANN401
    """What Arrow reads of an object that has no elements itself; the column of a table of one."""
    if not is_arrow(values) or is_pandas(values, "Series") or is_of(values, "polars", "Series"):
        return values
    held = read_arrow(values)
    return held.column(0) if getattr(held, "num_columns", 0) == 1 else held


def _without_labels(images: Any, ids: Sequence[str] | None = None) -> Zipped:  # noqa: ANN401
    return Zipped(_by_position(images), [UNLABELLED] * len(images), ids)


def is_frame(images: LabelledImages) -> bool:
    """Whether an object is a table in memory, but none of Hugging Face."""
    if is_hugging_face(images) or is_of(images, "datasets", "DatasetDict"):
        return False
    names = getattr(images, "column_names", None) or getattr(images, "columns", None)
    if isinstance(images, Mapping) or (names is not None and hasattr(images, "__getitem__")):
        return True
    return is_arrow(images) and not hasattr(images, "__getitem__")


def _pairs_of_frame(frame: Any, options: DatasetOptions) -> tuple[Zipped, list[str]]:  # noqa: ANN401
    """The pairs of a table, and a sentence where other columns look like labels, too."""
    unused = ("split",) if options.text_column is None else ("split", "image_column")
    check_options(options, "a table in memory", unused)
    # Columns of DataFrames may hold objects that Arrow cannot, such as PIL images.
    if is_arrow(frame) and not is_data_frame(frame):
        frame = to_table(frame, "the table", "images")
    names = [str(name) for name in (frame if isinstance(frame, Mapping) else _names_in(frame))]
    if options.text_column is None:
        image = _column_name(names, options.image_column, find_usual(IMAGE_NAMES, names), "image")
    else:
        image = _column_name(names, options.text_column, [], "text")
    like = label_like(names)
    if len(like) > 1 and like[:1] != find_usual(LABEL_NAMES, names)[:1]:
        like = []  # none of them is the usual one
    ids = None
    if options.id_column is not None:
        ids = _by_position(frame[_column_name(names, options.id_column, [], "id")])
        ids = [str(value) for value in ids]
    if options.unlabelled:
        return _without_labels(frame[image], ids), []
    label = _column_name(names, options.label_column, like, "label")
    others = like[1:] if options.label_column is None else []
    guesses = [several_labels_warning(label, others)] if others else []
    return Zipped(_by_position(frame[image]), _names_of(frame, names, label), ids), guesses


def _names_in(frame: Any) -> Sequence[object]:  # noqa: ANN401
    """The names of the columns of a table."""
    held: Sequence[object] | None = getattr(frame, "column_names", None)
    return frame.columns if held is None else held


def _names_of(frame: Any, names: list[str], label: str) -> Any:  # noqa: ANN401
    """The labels of a table: their names where a column beside them has one for each."""
    beside = f"{label}_name"
    labels = _by_position(frame[label])
    if beside not in names:
        return labels
    texts = _by_position(frame[beside])
    return texts if all(isinstance(text, str) and text.strip() for text in texts) else labels


def _column_name(names: list[str], chosen: str | None, usual: list[str], role: str) -> str:
    if chosen in names or (chosen is None and usual):
        return usual[0] if chosen is None else chosen
    raise DatasetError(
        f"no column {chosen!r} in the table, which has {names}"
        if chosen is not None
        else f"no column of the table is evidently that of the {role}s: it has {names}",
        "name one of these as ",
        Setting(f"{role}_column"),
        *(or_texts(names) if role == "image" else ()),
        parameter=f"{role}_column",
    )


def _by_position(values: Any) -> Any:  # noqa: ANN401
    """A sequence that counts from 0: a Series counts by its index, and Arrow wraps its values."""
    if hasattr(values, "to_list"):
        return values.to_list()
    return read_arrow(values).to_pylist() if is_arrow(values) else values


def is_pairs(images: LabelledImages) -> bool:
    """Whether an object is a collection of pairs, neither a path nor a Hugging Face dataset."""
    package = sys.modules.get("datasets")
    of_package = () if package is None else (package.Dataset, package.DatasetDict)
    return not isinstance(images, (str, os.PathLike, *of_package))


def _of_pairs(pairs: Any, options: DatasetOptions) -> tuple[Dataset, list[str]]:  # noqa: ANN401
    if options.modality == "image":
        _refuse_texts(pairs)
    classes = classes_of_pairs(pairs)
    kept = np.flatnonzero(classes.indices.numpy() >= 0)
    if len(pairs) and not len(kept):
        raise DatasetError(f"none of the {len(pairs):,} images has a label", "label some of them")
    unlabelled = len(classes.indices) - len(kept)
    warnings = [f"{unlabelled:,} of {len(pairs):,} images are left out: they have no label"]
    in_memory = ImagesInMemory(
        _reader(pairs, kept.tolist()),
        _sample_ids(pairs, kept.tolist(), options.modality),
        classes.indices.numpy()[kept].astype(np.int32),
        classes.names,
    )
    held = "images" if isinstance(pairs, Zipped) else type(pairs).__name__
    location = f"{held} in memory"
    warnings = [*classes.notes, *(warnings if unlabelled else [])]
    return open_memory(in_memory, location, options), warnings


def _refuse_texts(pairs: Any) -> None:  # noqa: ANN401
    """Refuses a list of texts, which would be read as the paths of files that are not there."""
    if isinstance(pairs, Zipped):
        first = pairs.images[:LOOKED_AT] if isinstance(pairs.images, list | tuple) else ()
    else:
        pairs = pairs[:LOOKED_AT] if isinstance(pairs, list | tuple) else ()
        first = [pair[0] for pair in pairs if isinstance(pair, list | tuple) and len(pair)]
    if first and all(isinstance(text, str) and _is_prose(text) for text in first):
        raise DatasetError(
            f"the images are texts, such as {first[0][:40]!r}, and no paths of files",
            "pass ",
            Setting("modality", "text"),
            parameter="images",
        )


def _is_prose(text: str) -> bool:
    """Whether a text has several words and is no path, by its ending or a file that is there."""
    has_words = len(text.split()) > 1 and "://" not in text
    # pathlib raises an error for names that are too long, which texts are.
    return has_words and not re.search(r"\.\w+$", text) and not os.path.exists(text)  # noqa: PTH110


def _reader(pairs: Any, kept: Sequence[int]) -> Callable[[int], object]:  # noqa: ANN401
    """Reads one image at a time: datasets of other people need not be thread-safe."""
    lock = threading.Lock()

    def read_image(position: int) -> object:
        if isinstance(pairs, list | tuple):
            return pairs[kept[position]][0]
        with lock:
            return pairs[kept[position]][0]

    return read_image


def _sample_ids(pairs: Any, kept: Sequence[int], modality: str) -> list[str]:  # noqa: ANN401
    """The paths of a list of paths if they differ, otherwise the positions."""
    if isinstance(pairs, Zipped):
        if pairs.ids is not None:
            return [pairs.ids[position] for position in kept]
        pairs = [(image, None) for image in pairs.images] if _holds_paths(pairs.images) else pairs
    if modality == "image" and isinstance(pairs, list | tuple):
        images = [pairs[position][0] for position in kept]
        if all(isinstance(image, str | os.PathLike) for image in images):
            paths = [str(image) for image in images]
            if len(set(paths)) == len(paths):
                return paths
    return [str(position) for position in kept]


def _holds_paths(images: Any) -> bool:  # noqa: ANN401
    return all(isinstance(image, str | os.PathLike) for image in images)
