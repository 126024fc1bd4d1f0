"""CIFAR-10 and CIFAR-100 as published: the Python and the binary version, unpacked or in their tar.

https://www.cs.toronto.edu/~kriz/cifar.html
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.listing import Listing, build_dataset, check_options
from difficulty_service.datasets.published.members import (
    CIFAR_10,
    CIFAR_100,
    Member,
    choose_split,
    damaged,
    find_members,
    tar_members,
)
from difficulty_service.datasets.published.pickles import (
    as_labels,
    as_names,
    pixel_offset,
    read_pickle,
)
from difficulty_service.datasets.published.pixels import CHANNELS_FIRST, PixelFile, open_pixels
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.storage import is_folder, resolve
from difficulty_service.datasets.tar_files import TAR_EXTENSIONS

TAR_FOLDER = re.compile(r"(\./)?cifar-(10-batches-(py|bin)|100-(python|binary))(/|$)")
"""Start of the names of all members of a tar of CIFAR."""

SHAPE = (3, 32, 32)
PIXEL_BYTES = 3 * 32 * 32

Batch = tuple[list[int] | NDArray[np.int32], PixelFile]
"""Labels and images of one file."""


@dataclass(frozen=True)
class _Version:
    """The files of one version of CIFAR.

    Attributes:
        train: Files of the training images, in order.
        test: File of the test images.
        names_file: File of the class names.
        class_names: Class names where that file is missing.
        read_batch: Function that reads a file of images.
        read_names: Function that reads the file of the class names.
    """

    train: tuple[str, ...]
    test: str
    names_file: str
    class_names: tuple[str, ...]
    read_batch: Callable[[Member], Batch]
    read_names: Callable[[Member], tuple[str, ...]]

    def is_present(self, names: set[str]) -> bool:
        """Whether files of this version are among the names."""
        has_images = not names.isdisjoint((*self.train, self.test))
        # The names `train` and `test` alone are those of many other files.
        return has_images and (self.class_names == CIFAR_10 or self.names_file in names)


def is_cifar(names: set[str]) -> bool:
    """Whether the names of the files in a folder are those of CIFAR."""
    return any(version.is_present(names) for version in _VERSIONS)


def is_cifar_file(name: str) -> bool:
    """Whether a file may be one with images of CIFAR, by its name alone."""
    return any(name in (*version.train, version.test) for version in _VERSIONS)


def open_cifar(location: str, options: DatasetOptions) -> Dataset:
    """Opens the training or test images of CIFAR-10 or CIFAR-100; the labels are the fine ones.

    Opening reads each file of the split once: up to 31 MB at a time for CIFAR-10 and 155 MB for the
    training images of CIFAR-100. Images are then read one by one.

    Args:
        location: The folder of the files, the only file of a split, or the published tar, which may
            be compressed.
        options: Options, of which the split, the limit and the shard size apply.

    Raises:
        DatasetError: A file is missing, damaged or not as published, a pickle refers to anything
            but arrays, or there are several splits and none is chosen.
    """
    check_options(options, "CIFAR", ("image_column", "label_column", "id_column"))
    place = resolve(location, options.boundary)
    if place.name.lower().endswith(TAR_EXTENSIONS) and not is_folder(place, location):
        members, chosen = tar_members(place), None
    else:
        members, chosen = find_members(location, options.boundary)
    version = next((v for v in _VERSIONS if v.is_present(set(members))), None)
    if version is None:
        raise DatasetError(
            f"{location!r} holds no files of CIFAR", "fetch it again", parameter="location"
        )
    split, files = _choose_split(version, set(members), chosen, location, options.split)
    class_names = version.class_names
    if version.names_file in members:
        class_names = version.read_names(members[version.names_file])
    batches = [version.read_batch(members[name]) for name in files]
    for name, (labels, _) in zip(files, batches, strict=True):
        _check_labels(np.asarray(labels), class_names, name)
    labels = np.concatenate([np.asarray(labels, dtype=np.int32) for labels, _ in batches])
    ids = [f"{split}#{row}" for row in range(len(labels))]
    listing = Listing(
        class_names,
        ids,
        labels,
        sizes=np.full(len(labels), PIXEL_BYTES, dtype=np.int64),
        files=tuple((name, members[name].size) for name in files),
        containers=[members[name].place for name in files],
    )
    open_at = partial(open_pixels, tuple(pixels for _, pixels in batches))
    return build_dataset(location, options, listing, open_at, ids.__getitem__)


def _choose_split(
    version: _Version, names: set[str], chosen: str | None, location: str, split: str | None
) -> tuple[str, tuple[str, ...]]:
    """The split and its files.

    Args:
        version: Version of CIFAR.
        names: Names of all files that are there.
        chosen: Name of the file that the location is; None for a folder.
        location: Location of the dataset, for messages.
        split: Split that is asked for, or None.

    Raises:
        DatasetError: A file is missing, or there are several splits and none is chosen.
    """
    files = {"train": version.train, "test": (version.test,)}
    if chosen in version.train and len(version.train) > 1:
        raise DatasetError(
            f"{location!r} is one of the {len(version.train)} files of the training images",
            "give their folder and ",
            Setting("split", "train"),
            parameter="location",
        )
    present = [
        name
        for name in files
        if not names.isdisjoint(files[name]) and chosen in (None, *files[name])
    ]
    split = choose_split(present, split, location)
    missing = [name for name in files[split] if name not in names]
    if missing:
        raise DatasetError(f"{location!r} lacks the file {missing[0]!r}", "fetch it again")
    return split, files[split]


def _check_labels(labels: NDArray[np.int64], class_names: tuple[str, ...], name: str) -> None:
    wrong = np.flatnonzero((labels < 0) | (labels >= len(class_names)))
    if len(wrong):
        raise damaged(
            name,
            f"image {wrong[0]} has the label {labels[wrong[0]]}, where there are "
            f"{len(class_names)} classes",
        )


def _read_pickled(member: Member, key: str) -> Batch:
    data = member.read()
    content = read_pickle(data, member.name)
    labels = as_labels(content.get(key), member.name, key)
    offset, count = pixel_offset(data, content.get("data"), member.name, PIXEL_BYTES)
    if count != len(labels):
        raise damaged(member.name, f"it has {count} images and {len(labels)} labels")
    return labels, _pixel_file(member, offset, PIXEL_BYTES, count)


def _read_pickled_names(member: Member, key: str) -> tuple[str, ...]:
    return as_names(read_pickle(member.read(), member.name).get(key), member.name, key)


def _read_binary(member: Member, label_bytes: int) -> Batch:
    """Reads records of one or two labels, of which the last is the fine one, and the pixels."""
    length = label_bytes + PIXEL_BYTES
    if not member.size or member.size % length:
        raise damaged(
            member.name, f"its {member.size:,} bytes are not a multiple of the {length} of an image"
        )
    records = np.frombuffer(member.read(), np.uint8).reshape(-1, length)
    labels = records[:, label_bytes - 1].astype(np.int32)
    return labels, _pixel_file(member, label_bytes, length, len(labels))


def _read_text_names(member: Member) -> tuple[str, ...]:
    names = tuple(member.read().decode("utf-8", "backslashreplace").split())
    if not names:
        raise damaged(member.name, "it holds no class names")
    return names


def _pixel_file(member: Member, offset: int, stride: int, count: int) -> PixelFile:
    start = member.offset + offset
    return PixelFile(member.name, member.place, start, stride, count, SHAPE, CHANNELS_FIRST)


_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))

_VERSIONS = (
    _Version(
        train=_BATCHES,
        test="test_batch",
        names_file="batches.meta",
        class_names=CIFAR_10,
        read_batch=partial(_read_pickled, key="labels"),
        read_names=partial(_read_pickled_names, key="label_names"),
    ),
    _Version(
        train=tuple(f"{name}.bin" for name in _BATCHES),
        test="test_batch.bin",
        names_file="batches.meta.txt",
        class_names=CIFAR_10,
        read_batch=partial(_read_binary, label_bytes=1),
        read_names=_read_text_names,
    ),
    _Version(
        train=("train",),
        test="test",
        names_file="meta",
        class_names=CIFAR_100,
        read_batch=partial(_read_pickled, key="fine_labels"),
        read_names=partial(_read_pickled_names, key="fine_label_names"),
    ),
    _Version(
        train=("train.bin",),
        test="test.bin",
        names_file="fine_label_names.txt",
        class_names=CIFAR_100,
        read_batch=partial(_read_binary, label_bytes=2),
        read_names=_read_text_names,
    ),
)
