"""The files of a published dataset, in a folder or in a tar that is read without extracting it.

Images that a file holds as plain pixels are passed on as PPM or PGM, which store the same pixels,
so they are decoded and prepared like every other image, without loss and without compression.
"""

import gzip
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.image_openers import open_bytes
from difficulty_service.datasets.listing import Listing
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.datasets.storage import (
    Boundary,
    StoredPath,
    is_folder,
    list_folder,
    open_file,
    reading,
    resolve,
)
from difficulty_service.datasets.tar_files import TAR_ERRORS, open_tar, read_headers

READ_ERRORS = TAR_ERRORS
"""Errors that reading a damaged or truncated file raises, compressed or not."""

MAX_BYTES = 1 << 28
"""Maximum size of a file that is read as a whole; the largest published one has 155 MB."""

_GZIP_EXTENSIONS = (".gz", ".tgz")


@dataclass(frozen=True)
class Member:
    """One file: its name without folders, and its bytes in a file or in a decompressed tar."""

    name: str
    place: StoredPath
    offset: int
    size: int

    def read(self) -> bytes:
        """The content of the file, of at most MAX_BYTES."""
        if self.size > MAX_BYTES:
            raise damaged(self.name, f"it has {self.size:,} bytes, more than {MAX_BYTES:,}")
        try:
            with open_unpacked(self.place) as file:
                file.seek(self.offset)
                data = file.read(self.size)
        except READ_ERRORS as error:
            raise damaged(self.name, error) from error
        if len(data) < self.size:
            raise damaged(self.name, f"it ends after {len(data):,} of {self.size:,} bytes")
        return data


def find_members(location: str, boundary: Boundary | None) -> tuple[dict[str, Member], str | None]:
    """The visible files in a folder, or those beside a file and the name of that file."""
    place, chosen = resolve(location, boundary), None
    if not is_folder(place, location):
        place, chosen = place.parent, place.name
    with reading(f"the folder of {location!r}", "listed"):
        entries = list_folder(place)
    return {
        name: Member(name, place.join(name), 0, size)
        for name, is_dir, size in sorted(entries)
        if not is_dir and (name == chosen or not name.startswith("."))
    }, chosen


def tar_members(place: StoredPath) -> dict[str, Member]:
    """The regular files of a tar by their names without folders."""
    try:
        with open_tar(place) as archive:
            headers = [header for header in read_headers(archive) if header.is_file]
    except TAR_ERRORS as error:
        raise damaged(place.name, error) from error
    members = (
        Member(header.name.rpartition("/")[2], place, header.offset, header.size)
        for header in headers
    )
    return {member.name: member for member in members}


@contextmanager
def open_unpacked(place: StoredPath) -> Iterator[BinaryIO]:
    """Opens a file, decompressed if its name says gzip; seeking backward may be expensive there."""
    with ExitStack() as stack:
        file = stack.enter_context(open_file(place))
        if place.name.lower().endswith(_GZIP_EXTENSIONS):
            file = cast(BinaryIO, stack.enter_context(gzip.GzipFile(fileobj=file)))
        yield file


def damaged(name: str, reason: object) -> DatasetError:
    """The error for a file that is not as it was published."""
    return DatasetError(
        f"{name!r} is damaged, truncated or of another format: {reason}", "fetch it again"
    )


CIFAR_10 = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck",
)  # fmt: skip

_CIFAR_100 = """
apple aquarium_fish baby bear beaver bed bee beetle bicycle bottle bowl boy bridge bus
butterfly camel can castle caterpillar cattle chair chimpanzee clock cloud cockroach couch
crab crocodile cup dinosaur dolphin elephant flatfish forest fox girl hamster house kangaroo
keyboard lamp lawn_mower leopard lion lizard lobster man maple_tree motorcycle mountain mouse
mushroom oak_tree orange orchid otter palm_tree pear pickup_truck pine_tree plain plate poppy
porcupine possum rabbit raccoon ray road rocket rose sea seal shark shrew skunk skyscraper
snail snake spider squirrel streetcar sunflower sweet_pepper table tank telephone television
tiger tractor train trout tulip turtle wardrobe whale willow_tree wolf woman worm
"""

CIFAR_100 = tuple(_CIFAR_100.split())


def read_lines(place: StoredPath) -> list[str] | None:
    """The lines of a text file without those that are empty; None if it cannot be read."""
    try:
        with open_file(place) as file:
            text = file.read().decode("utf-8", "backslashreplace")
    except (OSError, ValueError):
        return None
    return [line.strip() for line in text.splitlines() if line.strip()]


ROWS_AND_COLUMNS_FIRST, CHANNELS_FIRST = (0, 1, 2), (1, 2, 0)

_IMAGES_PER_READ = 64


@dataclass(frozen=True)
class PixelFile:
    """Images of one size at equal distances in a file, which is read image by image.

    Attributes:
        offset: Offset of the first pixel of the first image, after decompression.
        axes: Axes of that shape which are the rows, columns and channels.
    """

    name: str
    place: StoredPath
    offset: int
    stride: int
    count: int
    shape: tuple[int, int, int]
    axes: tuple[int, int, int] = ROWS_AND_COLUMNS_FIRST


def open_pixels(files: Sequence[PixelFile], positions: NDArray[np.int64]) -> Iterator[ImageOpener]:
    """Openers of the images at ascending positions in several files, one file after the other."""
    ends = np.cumsum([file.count for file in files])
    owners = np.searchsorted(ends, positions, side="right")
    for number in np.unique(owners).tolist():
        rows = positions[owners == number] - (ends[number] - files[number].count)
        yield from _open_rows(files[number], rows)


def list_pixels(
    class_names: tuple[str, ...],
    ids: list[str],
    labels: NDArray[np.int32],
    image_bytes: int,
    files: Sequence[Member],
) -> Listing:
    """The listing of images of one size whose pixels and labels are in some files."""
    sizes = np.full(len(ids), image_bytes, dtype=np.int64)
    stamps = tuple((file.name, file.size) for file in files)
    places = [file.place for file in files]
    return Listing(class_names, ids, labels, sizes, stamps, containers=places)


def encode_pixels(images: NDArray[np.uint8]) -> Iterator[ImageOpener]:
    """Openers of images as PPM, or as PGM if grey. Shape (samples, rows, columns, 1 or 3)."""
    _, rows, columns, channels = images.shape
    header = f"{'P5' if channels == 1 else 'P6'} {columns} {rows} 255\n".encode()
    for image in images:
        yield partial(open_bytes, header + image.tobytes())


def _open_rows(file: PixelFile, rows: NDArray[np.int64]) -> Iterator[ImageOpener]:
    try:
        with open_unpacked(file.place) as opened:
            for start in range(0, len(rows), _IMAGES_PER_READ):
                chosen = rows[start : start + _IMAGES_PER_READ].tolist()
                data = b"".join(_read(opened, file, row) for row in chosen)
                images = np.frombuffer(data, np.uint8).reshape(-1, *file.shape)
                yield from encode_pixels(images.transpose(0, *(1 + axis for axis in file.axes)))
    except READ_ERRORS as error:
        raise damaged(file.name, error) from error


def _read(opened: BinaryIO, file: PixelFile, row: int) -> bytes:
    opened.seek(file.offset + row * file.stride)
    size = int(np.prod(file.shape))
    data = opened.read(size)
    if len(data) < size:
        raise EOFError("it has become shorter since the dataset was opened")
    return data
