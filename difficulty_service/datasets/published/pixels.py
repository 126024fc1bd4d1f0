"""Images that a file holds as plain pixels, passed on as PPM or PGM, which store the same pixels.

So they are decoded and prepared like every other image, without loss and without compression.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from difficulty_service.datasets.image_openers import open_bytes
from difficulty_service.datasets.published.members import READ_ERRORS, damaged, open_unpacked
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.datasets.storage import StoredPath

ROWS_AND_COLUMNS_FIRST, CHANNELS_FIRST = (0, 1, 2), (1, 2, 0)

_IMAGES_PER_READ = 64


@dataclass(frozen=True)
class PixelFile:
    """Images of one size at equal distances in a file, which is read image by image.

    Attributes:
        name: Name of the file, for messages.
        place: Path of the file, or of the tar that contains it.
        offset: Offset of the first pixel of the first image, after decompression.
        stride: Bytes from the start of one image to that of the next.
        count: Number of images.
        shape: Shape of an image as stored.
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
    """Openers of the images at ascending positions in several files, one file after the other.

    Raises:
        DatasetError: A file is damaged, or has become shorter since the dataset was opened.
    """
    ends = np.cumsum([file.count for file in files])
    owners = np.searchsorted(ends, positions, side="right")
    for number in np.unique(owners).tolist():
        rows = positions[owners == number] - (ends[number] - files[number].count)
        yield from _open_rows(files[number], rows)


def encode_pixels(images: NDArray[np.uint8]) -> Iterator[ImageOpener]:
    """Openers of images as PPM, or as PGM if they are grey.

    Args:
        images: Pixels. Shape (samples, rows, columns, 1 or 3).
    """
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
