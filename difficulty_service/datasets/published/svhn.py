"""SVHN, cropped digits: `train_32x32.mat`, `test_32x32.mat` and `extra_32x32.mat`.

http://ufldl.stanford.edu/housenumbers/
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.published.mat_files import Variable, list_variables, read_variable
from difficulty_service.datasets.published.members import (
    Member,
    damaged,
    encode_pixels,
    find_members,
    list_pixels,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions, ImageOpener
from difficulty_service.datasets.splits import choose_split

FILE_NAME = re.compile(r"(train|test|extra)_32x32\.mat")
SHAPE = (32, 32, 3)
PIXEL_BYTES = 32 * 32 * 3
DIGITS = tuple("0123456789")
MAX_IMAGES = 1_000_000
"""Maximum number of images in a file; the largest published one holds 531,131."""

_MAX_BYTES = MAX_IMAGES * PIXEL_BYTES
_IMAGES_PER_COPY = 64


def is_svhn(names: set[str]) -> bool:
    """Whether a file of SVHN is among the names."""
    return any(FILE_NAME.fullmatch(name) for name in names)


def open_svhn(location: str, options: DatasetOptions) -> Dataset:
    """Opens the digits of one file; the label 10 is the digit zero.

    The files are compressed, so the images of one are kept in memory together while they are read:
    225 MB for `train`, 80 MB for `test` and 1.6 GB for `extra`; while it is decompressed, the file
    as well.
    """
    check_options(options, "SVHN")
    members, chosen = find_members(location, options.boundary)
    names = [name for name in members if FILE_NAME.fullmatch(name) and chosen in (None, name)]
    files = {name.partition("_")[0]: members[name] for name in names}
    split = choose_split(list(files), options.split, location)
    file = files[split]
    labels = _read_labels(file)
    ids = [f"{split}#{row}" for row in range(len(labels))]
    listing = list_pixels(DIGITS, ids, labels, PIXEL_BYTES, (file,))
    return build_dataset(location, options, listing, _LazyImages(file), ids.__getitem__)


class _LazyImages:
    """The images of a file, read when the first one is needed.

    Pickled without them, for processes that read them from the file themselves.
    """

    def __init__(self, file: Member) -> None:
        self._file = file
        self._images: NDArray[np.uint8] | None = None

    def __reduce__(self) -> tuple[Callable[[Member], "_LazyImages"], tuple[Member]]:
        return _LazyImages, (self._file,)

    def __call__(self, positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
        if self._images is None:
            images = _read(self._file, "X")
            if images.dtype != np.uint8 or images.shape[:-1] != SHAPE:
                raise damaged(self._file.name, "it has changed since the dataset was opened")
            self._images = images.transpose(3, 0, 1, 2)
        for start in range(0, len(positions), _IMAGES_PER_COPY):
            yield from encode_pixels(self._images[positions[start : start + _IMAGES_PER_COPY]])


def _read_labels(file: Member) -> NDArray[np.int32]:
    """The digits, after a check of the shapes of images and labels."""
    images = _variable(file, "X")
    shape = images.shape
    if not images.is_uint8 or shape[:-1] != SHAPE or not 0 < shape[-1] <= MAX_IMAGES:
        raise damaged(file.name, f"X has the shape {shape}, expected uint8 (32, 32, 3, images)")
    labels = _read(file, "y").reshape(-1)
    if len(labels) != shape[-1] or not np.isin(labels, range(1 + len(DIGITS))).all():
        raise damaged(file.name, f"expected {shape[-1]:,} labels from 1 to 10")
    return (labels % len(DIGITS)).astype(np.int32)


def _read(file: Member, name: str) -> NDArray[Any]:
    """An array of numbers in the file."""
    values = read_variable(file, _variable(file, name), _MAX_BYTES)
    if not isinstance(values, np.ndarray):
        raise damaged(file.name, f"{name} is not an array of numbers")
    return values


def _variable(file: Member, name: str) -> Variable:
    variables = list_variables(file)
    if name not in variables:
        raise damaged(file.name, f"it holds the variables {sorted(variables)} and not {name}")
    return variables[name]
