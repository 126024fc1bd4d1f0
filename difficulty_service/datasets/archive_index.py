"""The index of a tar or zip of class folders, read from its headers without extracting it."""

import re
import stat
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO, cast

import numpy as np

from difficulty_service.datasets.image_openers import has_image_extension
from difficulty_service.datasets.listing import as_text
from difficulty_service.datasets.storage import StoredFile, StoredPath, open_file
from difficulty_service.datasets.tar_headers import (
    MAX_MEMBERS,
    TAR_ERRORS,
    open_tar,
    read_headers,
    why_unreadable,
)
from difficulty_service.errors import DatasetError

ZIP_EXTENSION = ".zip"
MAX_MEMBER_BYTES = 1 << 28
"""Maximum size of one image after unpacking."""

_ZIP_ERRORS = (zipfile.BadZipFile, struct.error, NotImplementedError, *TAR_ERRORS)
_MAX_DIRECTORY_BYTES = 1 << 28
_MAX_RATIO = 200  # a photo hardly shrinks; an image of one colour does
_MIN_BYTES_OF_RATIO = 1 << 20
_ENCRYPTED = 0x1
_UNIX = 3
_LOCAL_HEADER_BYTES = 30
_MAX_DEPTH = 32
_UNSAFE = re.compile(r"^/|^[A-Za-z]:|[\x00-\x1f\x7f\\]|(^|/)\.\.(/|$)")
_CHECKED_HEADERS = 4096
_CHECKED_HEADERS_REMOTE = 256


@dataclass(frozen=True, slots=True)
class Member:
    """One file or folder of an archive.

    Attributes:
        path: Relative path, checked to be safe.
        is_folder: Whether the member is a folder.
        offset: Offset of the first byte in a tar, of the local header in a zip.
        stored: Number of bytes in the archive.
        size: Number of bytes after unpacking.
        problem: Reason why the member cannot be read; None if it can.
        checksum: CRC-32 in a zip; None in a tar.
        is_deflated: Whether the content is compressed.
    """

    path: str
    is_folder: bool
    offset: int
    stored: int
    size: int
    problem: str | None
    checksum: int | None = None
    is_deflated: bool = False


def read_archive(file: StoredFile) -> list[Member]:
    """Reads the members of an uncompressed tar or a zip, in order.

    Raises:
        DatasetError: The archive is damaged, encrypted, compressed as a whole or too large, or it
            has a member whose name leads outside.
    """
    name = file.place.name.lower()
    if name.endswith((".gz", ".tgz")):
        raise DatasetError(
            f"{file.place.name!r} is compressed as a whole, so reading an image needs all data "
            "before it",
            "write an uncompressed .tar, or a .zip",
            parameter="location",
        )
    is_zip = name.endswith(ZIP_EXTENSION)
    try:
        return list(_zip_members(file) if is_zip else _tar_members(file.place))
    except _ZIP_ERRORS as error:
        raise DatasetError(
            f"the archive {file.place.name!r} is damaged, truncated or not an archive: {error}",
            "fetch or write it again",
        ) from error


def _tar_members(place: StoredPath) -> Iterator[Member]:
    with open_tar(place) as archive:
        for header in read_headers(archive):
            path = _safe_path(header.name, place.name)
            problem = None if header.isdir() else why_unreadable(header, MAX_MEMBER_BYTES)
            # An unreadable member, such as a link, has no content, whatever its header says.
            size = 0 if problem or header.isdir() else header.size
            yield Member(path, header.isdir(), header.offset_data, size, size, problem)


def _safe_path(name: str, archive_name: str) -> str:
    if _UNSAFE.search(name):
        raise DatasetError(
            f"the member {as_text(name)[:200]!r} of {archive_name!r} has a name that leads outside "
            "or has unsafe characters",
            "write the archive again with relative names and `/` between their parts",
        )
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if len(parts) > _MAX_DEPTH:
        raise DatasetError(
            f"the member {as_text(name)[:200]!r} of {archive_name!r} is {len(parts)} folders deep",
            f"the maximum depth is {_MAX_DEPTH}",
        )
    return "/".join(parts)


@dataclass(frozen=True)
class _BoundedDirectory:
    """A file that limits the size of the directory that zipfile reads."""

    file: BinaryIO

    def read(self, size: int = -1) -> bytes:
        if size > _MAX_DIRECTORY_BYTES:
            raise zipfile.BadZipFile(f"a directory of {size:,} bytes")
        data = self.file.read(size if size >= 0 else _MAX_DIRECTORY_BYTES)
        if data.count(b"PK\x01\x02") > MAX_MEMBERS:
            raise zipfile.BadZipFile(f"more than {MAX_MEMBERS:,} members")
        return data

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def tell(self) -> int:
        return self.file.tell()


def _zip_members(file: StoredFile) -> Iterator[Member]:
    name = file.place.name
    with (
        open_file(file.place) as archive,
        zipfile.ZipFile(cast(BinaryIO, _BoundedDirectory(archive))) as opened,
    ):
        entries = opened.infolist()
    _refuse_overlaps(entries, file)
    for number, entry in enumerate(entries, 1):
        if not entry.filename:
            raise DatasetError(f"member {number:,} of {name!r} has no name", "write it again")
        if entry.flag_bits & _ENCRYPTED:
            raise DatasetError(f"{name!r} is encrypted", "write it again without a password")
        yield Member(
            path=_safe_path(entry.filename, name),
            is_folder=entry.is_dir(),
            offset=entry.header_offset,
            stored=entry.compress_size,
            size=entry.file_size,
            problem=_zip_problem(entry),
            checksum=entry.CRC,
            is_deflated=entry.compress_type == zipfile.ZIP_DEFLATED,
        )


def _refuse_overlaps(entries: list[zipfile.ZipInfo], file: StoredFile) -> None:
    """Refuses members that share bytes, as in a zip bomb that unpacks the same data many times."""
    starts = np.array([entry.header_offset for entry in entries], dtype=np.int64)
    lengths = np.array([entry.compress_size for entry in entries], dtype=np.int64)
    order = np.argsort(starts, kind="stable")
    starts, ends = starts[order], (starts + lengths)[order] + _LOCAL_HEADER_BYTES
    limits = np.append(starts[1:], file.size)
    if (lengths < 0).any() or (starts < 0).any() or (ends > limits).any():
        raise zipfile.BadZipFile("its members overlap or lie beyond its end")


def _zip_problem(entry: zipfile.ZipInfo) -> str | None:
    kind = stat.S_IFMT(entry.external_attr >> 16) if entry.create_system == _UNIX else 0
    if entry.is_dir():
        return None
    if kind not in (0, stat.S_IFREG):
        what = "a link" if kind == stat.S_IFLNK else "not a regular file"
        return f"{what} inside a zip, not an image"
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return f"compressed by method {entry.compress_type}, but only stored and deflated are read"
    if max(entry.file_size, entry.compress_size) > MAX_MEMBER_BYTES:
        return f"{entry.file_size:,} bytes, more than the {MAX_MEMBER_BYTES:,} one image may have"
    if entry.file_size > max(_MIN_BYTES_OF_RATIO, _MAX_RATIO * entry.compress_size):
        return f"{entry.compress_size:,} bytes that unpack to {entry.file_size:,}: not a photograph"
    return None


def holds_class_folders(place: StoredPath) -> bool:
    """Whether the first members of a tar are images in folders without label files beside them."""
    limit = _CHECKED_HEADERS if place.is_local else _CHECKED_HEADERS_REMOTE
    images, labelled, in_folder = set(), set(), False
    try:
        with open_tar(place) as archive:
            for count, header in enumerate(read_headers(archive)):
                folder, slash, name = header.name.removeprefix("./").rpartition("/")
                key = folder + slash + name.partition(".")[0]
                if has_image_extension(name):
                    images.add(key)
                    in_folder = in_folder or bool(folder)
                elif name.lower().endswith((".cls", ".json")):
                    labelled.add(key)
                if count >= limit or images & labelled:
                    break
    except TAR_ERRORS:
        return False
    return in_folder and not images & labelled
