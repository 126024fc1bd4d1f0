"""Openers of encoded images: from bytes, from a file, or from a cell of a table.

An opener is called when the image is decoded, possibly in another thread or process, so it holds
no open file and can be pickled. Every problem with an image is an ImageError at that time.
"""

import base64
import binascii
import io
import os
import posixpath
import re
import stat
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import BinaryIO, NoReturn

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DifficultyError, ImageError
from difficulty_service.datasets.sample import FileOpener, ImageOpener
from difficulty_service.datasets.storage import OUTSIDE, Boundary, StoredPath, is_uri, resolve
from difficulty_service.images.header import CONVERT

_JPEG_EXTENSIONS = frozenset(("jpg", "jpeg", "jpe", "jfif"))
IMAGE_EXTENSIONS = _JPEG_EXTENSIONS.union(
    ("png", "webp", "gif", "bmp", "tif", "tiff", "ppm", "pgm", "avif", "heic", "heif", "hif")
)
MAX_IMAGE_BYTES = 1 << 30


def has_image_extension(name: str) -> bool:
    """Whether a file name has the extension of an image, in upper or lower case."""
    return name.rpartition(".")[2].lower() in IMAGE_EXTENSIONS and "." in name


_OF_FIELDS = {
    ".dcm": "a DICOM file",
    ".dicom": "a DICOM file",
    ".nii": "a NIfTI volume",
    ".nii.gz": "a NIfTI volume",
    ".jp2": "a JPEG 2000 image",
    ".j2k": "a JPEG 2000 image",
    ".czi": "a stack of ZEISS",
    ".nd2": "a stack of Nikon",
    ".lif": "a stack of Leica",
    ".svs": "a whole slide",
}
"""Files of other fields by the ends of their names."""


def field_file(name: str) -> str | None:
    """What a file of another field is, by the end of its name; None for any other file."""
    return next((kind for end, kind in _OF_FIELDS.items() if name.lower().endswith(end)), None)


def refusing(reason: str) -> ImageOpener:
    """An opener of a sample that cannot be an image: raises ImageError with the reason."""
    return partial(_refuse, reason)


def _refuse(reason: str) -> NoReturn:
    raise ImageError(reason)


def extension_problem(name: str) -> str:
    """The reason why a file without an image extension is not an image."""
    extension = os.path.splitext(name)[1]  # noqa: PTH122
    of_field = field_file(name)
    if of_field is not None:
        return f"{of_field}, which is not read: {CONVERT}"
    if extension:
        return f"not an image file by its extension {extension!r}"
    return "not an image file: its name has no extension"


def check_size(size: int) -> None:
    """Refuses an image with more than MAX_IMAGE_BYTES encoded bytes."""
    if size > MAX_IMAGE_BYTES:
        raise ImageError(f"{size:,} bytes, more than the {MAX_IMAGE_BYTES:,} one image may have")


def open_bytes(data: bytes) -> BinaryIO:
    """Opens encoded bytes in memory as a file."""
    return io.BytesIO(data)


def open_image(place: StoredPath) -> BinaryIO:
    """Opens a file that should be an image; a remote one is read in one request."""
    try:
        if place.is_local:
            return _open_local(place)
        place.require_inside()
        with place.filesystem.open_input_file(place.path) as file:
            check_size(file.size())
            return io.BytesIO(file.read())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ImageError(f"cannot be read: {reason}") from error


def _open_local(place: StoredPath) -> BinaryIO:
    place.require_inside()
    path = place.path
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path per image costs more than the call
    except FileNotFoundError as error:
        broken = os.path.islink(path)  # noqa: PTH114
        raise ImageError("a broken symbolic link" if broken else "no such file") from error
    if stat.S_ISDIR(status.st_mode):
        raise ImageError("a directory, not an image file")
    # Opening a pipe would block until another process writes to it.
    if not stat.S_ISREG(status.st_mode):
        raise ImageError("not a regular file")
    check_size(status.st_size)
    if place.boundary is not None:
        return place.boundary.open_file(path)
    return open(path, "rb")  # noqa: PTH123


def open_location(location: str) -> BinaryIO:
    """Opens the image at a path or URI, which may lead anywhere; errors as for `open_image`."""
    try:
        place = resolve(location)
    except DifficultyError as error:
        raise ImageError(str(error)) from error
    return open_image(place)


def open_each(
    folder: StoredPath, paths: list[str], positions: NDArray[np.int64]
) -> Iterator[ImageOpener]:
    """Openers of the images at some positions of a list of paths below a folder."""
    for position in positions.tolist():
        yield partial(open_image, folder.join(paths[position]))


_DATA_URI = re.compile(r"data:(?:image/[\w.+-]+)?(?:;[\w=.-]+)*;base64,", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}\s*")
_SHORTEST = 64
_FIRST_OF_IMAGES = ("iVBORw0KGgo", "/9j/", "R0lGOD", "UklGR", "SUkqA", "TU0AK", "Qk")
"""What base64 of PNG, JPEG, GIF, WebP, TIFF and BMP begins with."""


def embedded(cell: str) -> str | None:
    """The base64 text of an image in a cell, alone or in a data URI; None of a path."""
    uri = _DATA_URI.match(cell)
    if uri is not None:
        return cell[uri.end() :]
    is_image = len(cell) >= _SHORTEST and cell.startswith(_FIRST_OF_IMAGES)
    return cell if is_image and _BASE64.fullmatch(cell) else None


def cell_opener(cell: object, folder: StoredPath, *, is_base64: bool = False) -> ImageOpener:
    """Opener of the image in a cell of a table.

    A cell holds encoded bytes, base64 text of them, also in a data URI, a path or URI, a struct
    `{bytes, path}` in which bytes take precedence, or None.
    """
    if isinstance(cell, dict):
        data = cell.get("bytes")
        if isinstance(data, str) and is_base64:
            return partial(_open_base64, data)
        cell = data if data is not None else cell.get("path")
    if isinstance(cell, bytes):
        return partial(open_bytes, cell) if cell else refusing("empty: no bytes")
    if isinstance(cell, str) and cell:
        data = embedded(cell)
        if data is not None:
            return partial(_open_base64, data)
        return _reference_opener(cell, folder)
    return refusing("no image: the cell is empty")


def text_opener(cell: object) -> ImageOpener:
    """Opener of the text in a cell of a table, as UTF-8; a blank one raises ImageError."""
    if not isinstance(cell, str):
        return refusing("no text: the cell is empty")
    if not cell.strip():
        return refusing("no text: only white space")
    try:
        return partial(open_bytes, cell.encode())
    except UnicodeEncodeError:  # half of a surrogate pair, which texts of Python may have
        return refusing("no text: it has a character that UTF-8 does not have")


def _reference_opener(reference: str, folder: StoredPath) -> ImageOpener:
    opener = partial(_open_reference, reference, folder)
    if is_uri(reference) or not (folder.is_local or posixpath.isabs(reference)):
        return opener
    path = posixpath.join(folder.path, reference)
    if "\\" in reference and not os.path.exists(path):  # noqa: PTH110
        return _reference_opener(reference.replace("\\", "/"), folder)  # written by Windows
    # Without its file, what is outside is not found among the features of earlier runs either.
    return FileOpener(path, opener) if _place_of(reference, folder).is_inside else opener


def _open_base64(text: str) -> BinaryIO:
    try:
        return io.BytesIO(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, ValueError) as error:
        raise ImageError(f"not base64 text: {error}") from error


def _open_reference(reference: str, folder: StoredPath) -> BinaryIO:
    if not is_uri(reference):
        return open_image(_place_of(reference, folder))
    if folder.boundary is not None:
        return _open_uri_inside(reference, folder, folder.boundary)
    return open_location(reference)


def _place_of(reference: str, folder: StoredPath) -> StoredPath:
    """Place of a path, which is absolute or begins in a folder."""
    if posixpath.isabs(reference):
        return resolve(reference, folder.boundary)
    return folder.join(reference)


def _open_uri_inside(uri: str, folder: StoredPath, boundary: Boundary) -> BinaryIO:
    """Opens a URI below that of the boundary; any other could reach arbitrary servers."""
    if boundary.uri is not None and uri.startswith(f"{boundary.uri}/"):
        below = uri.removeprefix(f"{boundary.uri}/")
        return open_image(replace(folder, path=boundary.root).join(below.lstrip("/")))
    if uri.lower().startswith("https://"):
        if boundary.fetch is None:
            raise ImageError("an https address, and reading those is disabled")
        return boundary.fetch(uri)
    raise ImageError(f"cannot be read: {OUTSIDE}")
