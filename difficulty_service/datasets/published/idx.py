"""MNIST and datasets in its format, such as Fashion-MNIST and KMNIST: IDX files, also gzipped.

https://yann.lecun.org/exdb/mnist/
"""

import math
import re
import struct
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.published.members import (
    READ_ERRORS,
    Member,
    PixelFile,
    damaged,
    find_members,
    list_pixels,
    open_pixels,
    open_unpacked,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.splits import choose_split

FILE_NAME = re.compile(r"(train|t10k|test)-images([-.])idx3-ubyte(\.gz)?")
UINT8 = 0x08

_BYTES_PER_READ = 1 << 20


def is_idx(names: set[str]) -> bool:
    """Whether a file of images in this format is among the names."""
    return any(FILE_NAME.fullmatch(name) for name in names)


def open_idx(location: str, options: DatasetOptions) -> Dataset:
    """Opens grey images whose labels lie in a second file beside theirs; class names are numbers.

    A gzipped file is decompressed once when it is opened and once, up to the last image needed, for
    each shard; others are read image by image. The split is `train` or `test`; the location is the
    file of the images, or the folder of both.
    """
    check_options(options, "IDX files")
    members, chosen = find_members(location, options.boundary)
    # Where both are present, the file without compression has the shorter name and comes first.
    names = [name for name in members if FILE_NAME.fullmatch(name) and chosen in (None, name)]
    files = {_split_of(name): members[name] for name in reversed(names)}
    split = choose_split(sorted(files, reverse=True), options.split, location)
    images, labels_file = files[split], _labels_beside(files[split], members)
    count, rows, columns = _read_header(images, 3)
    labels = _read_labels(labels_file)
    if len(labels) != count:
        raise damaged(labels_file.name, f"it has {len(labels)} labels for {count} images")
    pixels = PixelFile(
        images.name, images.place, _header_length(3), rows * columns, count, (rows, columns, 1)
    )
    ids = [f"{split}#{row}" for row in range(count)]
    class_names = tuple(map(str, range(max(10, int(labels.max(initial=0)) + 1))))
    listing = list_pixels(class_names, ids, labels, rows * columns, (images, labels_file))
    open_at = partial(open_pixels, (pixels,))
    return build_dataset(location, options, listing, open_at, ids.__getitem__)


def _split_of(name: str) -> str:
    return "train" if name.startswith("train") else "test"


def _labels_beside(images: Member, members: dict[str, Member]) -> Member:
    """The file of the labels, whose name is that of the images with other words in two places."""
    plain = re.sub(r"images([-.])idx3", r"labels\1idx1", images.name.removesuffix(".gz"))
    for name in (plain, f"{plain}.gz"):
        if name in members:
            return members[name]
    raise DatasetError.of_location(
        f"{images.name!r} has no file of labels beside it",
        f"put {plain!r} or {plain + '.gz'!r} into the same folder",
    )


def _read_header(file: Member, dimensions: int) -> tuple[int, ...]:
    """The lengths of the dimensions, after a check that all values are there."""
    try:
        with open_unpacked(file.place) as opened:
            head = opened.read(_header_length(dimensions))
            magic, *lengths = struct.unpack(f">{1 + dimensions}I", head)
            if magic != UINT8 << 8 | dimensions:
                raise ValueError(f"it begins with {head[:4]!r}")
            expected = math.prod(lengths)
            size = _count_bytes(opened, limit=expected + 1)
    except (struct.error, *READ_ERRORS) as error:
        raise damaged(file.name, error) from error
    if size != expected or not expected:
        raise damaged(file.name, f"its header states {expected:,} values, but it holds {size:,}")
    return tuple(lengths)


def _count_bytes(opened: BinaryIO, limit: int) -> int:
    """Number of bytes up to the end of a file, or the limit if there are more.

    Reading a gzipped file to its end also checks its checksum.
    """
    count = 0
    while count < limit and (data := opened.read(min(_BYTES_PER_READ, limit - count))):
        count += len(data)
    return count


def _read_labels(file: Member) -> NDArray[np.int32]:
    (count,) = _read_header(file, 1)
    with open_unpacked(file.place) as opened:
        opened.seek(_header_length(1))
        return np.frombuffer(opened.read(count), np.uint8).astype(np.int32)


def _header_length(dimensions: int) -> int:
    return 4 * (1 + dimensions)
