"""CIFAR-10 and CIFAR-100 as published: the Python and the binary version, unpacked or in their tar.

https://www.cs.toronto.edu/~kriz/cifar.html

A pickle is a program: it may call any function that it can name. The files of CIFAR name three,
which rebuild a NumPy array. Here these names stand for a class that only records its arguments, and
any other name is an error. Not even NumPy's own functions are called, because they trust the
lengths and types that a pickle states.
"""

import io
import pickle
import pickletools
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError, Setting
from difficulty_service.datasets.listing import build_dataset, check_options
from difficulty_service.datasets.published.members import (
    CHANNELS_FIRST,
    CIFAR_10,
    CIFAR_100,
    Member,
    PixelFile,
    damaged,
    find_members,
    list_pixels,
    open_pixels,
    tar_members,
)
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.splits import choose_split
from difficulty_service.datasets.storage import is_folder, resolve
from difficulty_service.datasets.tar_files import TAR_EXTENSIONS

_RECORDED = frozenset(
    (module, name)
    for module, names in {
        "numpy": ("dtype", "ndarray"),
        "numpy.core.multiarray": ("_reconstruct",),
        "numpy._core.multiarray": ("_reconstruct",),
    }.items()
    for name in names
)
_BYTES = (b"u1", "u1")
_STATE_LENGTH = 5
_MAX_TUPLES = 64


class PickledObject:
    """The arguments and the state of a NumPy object in a pickle, none of which is interpreted."""

    def __init__(self, *arguments: object) -> None:
        self.arguments = arguments
        self.state: object = None

    def __setstate__(self, state: object) -> None:
        self.state = state


class _RefusedName(Exception):
    """A name in a pickle that is none of an array's."""


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[PickledObject]:
        if (module, name) not in _RECORDED:
            raise _RefusedName(f"{module}.{name}")
        return PickledObject


def read_pickle(data: bytes, name: str) -> dict[str, object]:
    """Reads a pickled dictionary of numbers, text, lists and arrays, each a `PickledObject`."""
    try:
        _check_instructions(data)
        content = _Unpickler(io.BytesIO(data), encoding="bytes").load()
    except _RefusedName as error:
        raise DatasetError(
            f"{name!r} is a pickle that names {error}, which could run any program and which CIFAR "
            "does not need; nothing was run",
            "fetch the file from its authors",
        ) from error
    except Exception as error:
        raise damaged(name, error) from error
    if not isinstance(content, dict):
        raise damaged(name, f"it holds a {type(content).__name__} and not a dictionary")
    return {_as_text(key): value for key, value in content.items()}


def pixel_offset(data: bytes, value: object, name: str, row_length: int) -> tuple[int, int]:
    """Offset of the bytes of a two-dimensional uint8 array in a pickle, and number of its rows."""
    state = value.state if isinstance(value, PickledObject) else None
    if not isinstance(state, tuple) or len(state) != _STATE_LENGTH:
        raise damaged(name, "it has no array 'data'")
    _, shape, dtype, is_fortran, content = state
    if not isinstance(dtype, PickledObject) or dtype.arguments[:1] not in [(t,) for t in _BYTES]:
        raise damaged(name, "the array 'data' is not of type uint8")
    rows = len(content) // row_length if isinstance(content, bytes) else 0
    if not rows or is_fortran or shape != (rows, row_length) or len(content) != rows * row_length:
        raise damaged(
            name, f"the array 'data' has the shape {shape}, expected (images, {row_length})"
        )
    offset = data.find(content)
    if offset < 0:
        raise DatasetError(
            f"{name!r} does not hold its pixels as plain bytes", "write it with pickle protocol 4"
        )
    return offset, rows


def _as_text(value: object) -> str:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def _check_instructions(data: bytes) -> None:
    """Refuses a pickle that would make the unpickler itself fill the memory or the stack.

    Its memo has an index above the number of instructions before it, or there are more tuples than
    arrays need, which might be nested.
    """
    num_tuples = 0
    for count, (opcode, argument, _) in enumerate(pickletools.genops(data)):
        if opcode.name in ("PUT", "LONG_BINPUT") and not 0 <= int(argument or 0) <= count:
            raise pickle.UnpicklingError(f"its memo has the index {argument}")
        num_tuples += opcode.name.startswith(("TUPLE", "FROZENSET"))
        if num_tuples > _MAX_TUPLES:
            raise pickle.UnpicklingError(f"it holds more than {_MAX_TUPLES} tuples")


TAR_FOLDER = re.compile(r"(\./)?cifar-(10-batches-(py|bin)|100-(python|binary))(/|$)")
"""Start of the names of all members of a tar of CIFAR."""

SHAPE = (3, 32, 32)
PIXEL_BYTES = 3 * 32 * 32

Batch = tuple[list[int] | NDArray[np.int32], PixelFile]
"""Labels and images of one file."""


@dataclass(frozen=True)
class _CifarVersion:
    """The files of one version of CIFAR, and class names in case that their file is missing."""

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
    training images of CIFAR-100. Images are then read one by one. The location is the folder of the
    files, the only file of a split, or the tar, also compressed.
    """
    check_options(options, "CIFAR")
    place = resolve(location, options.boundary)
    if place.name.lower().endswith(TAR_EXTENSIONS) and not is_folder(place, location):
        members, chosen = tar_members(place), None
    else:
        members, chosen = find_members(location, options.boundary)
    version = next((v for v in _VERSIONS if v.is_present(set(members))), None)
    if version is None:
        raise DatasetError.of_location(f"{location!r} holds no files of CIFAR", "fetch it again")
    split, files = _choose_split(version, set(members), chosen, location, options.split)
    class_names = version.class_names
    if version.names_file in members:
        class_names = version.read_names(members[version.names_file])
    batches = [version.read_batch(members[name]) for name in files]
    for name, (labels, _) in zip(files, batches, strict=True):
        _check_labels(np.asarray(labels), class_names, name)
    labels = np.concatenate([np.asarray(labels, dtype=np.int32) for labels, _ in batches])
    ids = [f"{split}#{row}" for row in range(len(labels))]
    used = [members[name] for name in files]
    listing = list_pixels(class_names, ids, labels, PIXEL_BYTES, used)
    open_at = partial(open_pixels, tuple(pixels for _, pixels in batches))
    return build_dataset(location, options, listing, open_at, ids.__getitem__)


def _choose_split(
    version: _CifarVersion, names: set[str], chosen: str | None, location: str, split: str | None
) -> tuple[str, tuple[str, ...]]:
    """The split and its files; `chosen` is the name of the file that the location is."""
    files = {"train": version.train, "test": (version.test,)}
    if chosen in version.train and len(version.train) > 1:
        raise DatasetError.of_location(
            f"{location!r} is one of the {len(version.train)} files of the training images",
            "give their folder and ",
            Setting("split", "train"),
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
    labels = content.get(key)
    if not isinstance(labels, list) or not all(isinstance(label, int) for label in labels):
        raise damaged(member.name, f"it has no list of integers {key!r}")
    offset, count = pixel_offset(data, content.get("data"), member.name, PIXEL_BYTES)
    if count != len(labels):
        raise damaged(member.name, f"it has {count} images and {len(labels)} labels")
    return labels, _pixel_file(member, offset, PIXEL_BYTES, count)


def _read_pickled_names(member: Member, key: str) -> tuple[str, ...]:
    names = read_pickle(member.read(), member.name).get(key)
    if not isinstance(names, list) or not all(isinstance(name, bytes | str) for name in names):
        raise damaged(member.name, f"it has no list of texts {key!r}")
    return tuple(map(_as_text, names))


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
    _CifarVersion(
        train=_BATCHES,
        test="test_batch",
        names_file="batches.meta",
        class_names=CIFAR_10,
        read_batch=partial(_read_pickled, key="labels"),
        read_names=partial(_read_pickled_names, key="label_names"),
    ),
    _CifarVersion(
        train=tuple(f"{name}.bin" for name in _BATCHES),
        test="test_batch.bin",
        names_file="batches.meta.txt",
        class_names=CIFAR_10,
        read_batch=partial(_read_binary, label_bytes=1),
        read_names=_read_text_names,
    ),
    _CifarVersion(
        train=("train",),
        test="test",
        names_file="meta",
        class_names=CIFAR_100,
        read_batch=partial(_read_pickled, key="fine_labels"),
        read_names=partial(_read_pickled_names, key="fine_label_names"),
    ),
    _CifarVersion(
        train=("train.bin",),
        test="test.bin",
        names_file="fine_label_names.txt",
        class_names=CIFAR_100,
        read_batch=partial(_read_binary, label_bytes=2),
        read_names=_read_text_names,
    ),
)
