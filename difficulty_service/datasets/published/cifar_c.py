"""CIFAR-10-C and CIFAR-100-C: one NumPy file per corruption, in which five severities follow.

https://github.com/hendrycks/robustness

Headers of NumPy files, whose content is read without allocating what a damaged header claims.
"""

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.published.members import (
    CIFAR_10,
    CIFAR_100,
    Member,
    PixelFile,
    damaged,
    find_members,
    list_pixels,
    open_pixels,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import open_file


@dataclass(frozen=True)
class NpyHeader:
    """Offset of the first value, shape in C order and type, never of objects, of an array."""

    offset: int
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]


def read_header(member: Member) -> NpyHeader:
    """Reads the header of a NumPy file and checks it against the size of the file."""
    try:
        with open_file(member.place) as file:
            version = npy.read_magic(file)
            read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
            shape, is_fortran, dtype = read(file)
            header = NpyHeader(file.tell(), shape, dtype)
    except Exception as error:
        raise damaged(member.name, error) from error
    if is_fortran or dtype.hasobject:
        raise damaged(member.name, "it holds objects, or an array in Fortran order")
    expected = header.offset + math.prod(shape) * dtype.itemsize
    if member.size != expected:
        raise damaged(member.name, f"it has {member.size:,} bytes instead of {expected:,}")
    return header


EXTENSION = ".npy"
LABELS_FILE = "labels.npy"
SEVERITIES: tuple[str, ...] = ("1", "2", "3", "4", "5")
SHAPE = (32, 32, 3)
PIXEL_BYTES = 32 * 32 * 3


def is_cifar_c(names: set[str]) -> bool:
    """Whether the names of the files in a folder are those of CIFAR-10-C or CIFAR-100-C."""
    return LABELS_FILE in names and sum(name.endswith(EXTENSION) for name in names) > 1


def open_cifar_c(location: str, options: DatasetOptions) -> Dataset:
    """Opens one corruption, at all severities or at one of them; images are read one by one.

    Ids are `fog/3#17`: the corruption, the severity and the row in the uncorrupted test images. The
    location is the file of a corruption beside `labels.npy`, or the folder of these files. The
    split is the severity, such as `3`; for a folder it is the corruption, as `fog` or `fog/3`.
    """
    check_options(options, "CIFAR-10-C or CIFAR-100-C")
    images, severity, labels_file = _choose_files(location, options)
    labels, pixels = _read_labels(labels_file), _pixels(images)
    if pixels.count != len(labels) or not pixels.count or pixels.count % len(SEVERITIES):
        raise damaged(
            images.name,
            f"it has {pixels.count} images for the {len(labels)} labels of {LABELS_FILE!r} and "
            "five severities",
        )
    length, severities = len(labels) // len(SEVERITIES), SEVERITIES
    if severity is not None:
        severities = (choose_split(SEVERITIES, severity, location),)
        first = SEVERITIES.index(severity) * length
        pixels = replace(pixels, offset=pixels.offset + first * PIXEL_BYTES, count=length)
        labels = labels[first : first + length]
    corruption = images.name.removesuffix(EXTENSION)
    ids = [f"{corruption}/{level}#{row}" for level in severities for row in range(length)]
    class_names = CIFAR_10 if labels.max(initial=0) < len(CIFAR_10) else CIFAR_100
    listing = list_pixels(class_names, ids, labels, PIXEL_BYTES, (images, labels_file))
    open_at = partial(open_pixels, (pixels,))
    return build_dataset(location, options, listing, open_at, ids.__getitem__)


def _choose_files(location: str, options: DatasetOptions) -> tuple[Member, str | None, Member]:
    """The file of a corruption, the severity or None for all, and the file of the labels."""
    members, chosen = find_members(location, options.boundary)
    if LABELS_FILE not in members:
        raise DatasetError.of_location(
            f"{location!r} has no {LABELS_FILE!r} beside it", "put it into the same folder"
        )
    labels = members.pop(LABELS_FILE)
    if chosen == LABELS_FILE:
        raise DatasetError.of_location(
            f"{location!r} holds labels only", "give the file of a corruption"
        )
    if chosen is not None:
        return members[chosen], options.split, labels
    files = {
        name.removesuffix(EXTENSION): member
        for name, member in members.items()
        if name.endswith(EXTENSION)
    }
    corruption, _, severity = (options.split or "").partition("/")
    corruption = choose_split(list(files), corruption or None, location)
    return files[corruption], severity or None, labels


def _read_labels(file: Member) -> NDArray[np.int32]:
    header = read_header(file)
    labels = np.frombuffer(file.read(), header.dtype, offset=header.offset).reshape(header.shape)
    is_list = labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    if not is_list or labels.min(initial=0) < 0 or labels.max(initial=0) >= len(CIFAR_100):
        raise damaged(file.name, "expected one integer from 0 to 99 for each image")
    return labels.astype(np.int32)


def _pixels(file: Member) -> PixelFile:
    header = read_header(file)
    if header.dtype != np.uint8 or header.shape[1:] != SHAPE:
        raise damaged(
            file.name,
            f"it holds {header.dtype} of shape {header.shape}, expected uint8 images "
            f"of shape {SHAPE}",
        )
    return PixelFile(file.name, file.place, header.offset, PIXEL_BYTES, header.shape[0], SHAPE)
