"""Where the files of a dataset lie: local paths and URIs, globs, opening for reading.

A location is a local path or a URI of anything that pyarrow knows (`s3://`, `gs://`, `hdfs://`,
`abfs://`, `file://`) or else fsspec. In a URI a `?` starts the query, so there `*`, `[...]` and
`**` are the wildcards; local globs know `?` as well.

S3-compatible servers are reached the way the AWS tools do it, through AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION, or in the URI itself:
`s3://bucket/photos?endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1`.
"""

import io
import os
import posixpath
import re
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import pyarrow as pa
from pyarrow.fs import (
    FileInfo,
    FileSelector,
    FileSystem,
    FileType,
    FSSpecHandler,
    LocalFileSystem,
    PyFileSystem,
)

from difficulty_service.datasets.boundary import Boundary, Fetch
from difficulty_service.errors import DatasetError, MissingPackage

READ_AHEAD = 8 << 20
"""Bytes of one request to remote storage; neighbouring small reads share it."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

Entry = tuple[str, bool, int]
"""Name inside its folder, whether it is a folder, size in bytes."""


@dataclass(frozen=True)
class StoredPath:
    """A path in a file system: what a location means.

    Attributes:
        filesystem: Of pyarrow.
        path: Absolute, in the file system's own form.
        boundary: What may not be left on the way to it; None lets it lie anywhere.
    """

    filesystem: FileSystem
    path: str
    boundary: Boundary | None = None

    @property
    def is_local(self) -> bool:
        """Whether Python's own file functions read it."""
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return posixpath.basename(self.path.rstrip("/"))

    @property
    def parent(self) -> "StoredPath":
        """The folder it is in."""
        return StoredPath(self.filesystem, posixpath.dirname(self.path.rstrip("/")), self.boundary)

    def join(self, relative: str) -> "StoredPath":
        """A path below this one."""
        return StoredPath(self.filesystem, posixpath.join(self.path, relative), self.boundary)

    def require_inside(self) -> None:
        """Raises PermissionError if it lies outside of its boundary."""
        if self.boundary is not None:
            self.boundary.require(self.path, is_local=self.is_local)


@dataclass(frozen=True)
class StoredFile:
    """One file of a dataset.

    Attributes:
        place: Where it is.
        size: In bytes.
    """

    place: StoredPath
    size: int


def is_uri(location: str) -> bool:
    """Whether a location begins with a scheme, as in `s3://`."""
    return _URI.match(location) is not None


def resolve(location: str, boundary: Boundary | None = None) -> StoredPath:
    """The file system and path of a location, without touching either.

    Args:
        location: A path, a URI, a glob of either.
        boundary: What reading it may not leave.

    Raises:
        DatasetError: The scheme is unknown, or the address is malformed.
        MissingPackage: The scheme needs an fsspec package that is not installed.
    """
    if not is_uri(location):
        return StoredPath(LocalFileSystem(), Path(location).absolute().as_posix(), boundary)
    try:
        filesystem, path = FileSystem.from_uri(_quote_wildcards(location))
    except pa.ArrowInvalid:
        return _resolve_with_fsspec(location, boundary)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be reached: {error}") from error
    return StoredPath(filesystem, path.rstrip("/") or "/", boundary)


def boundary_at(location: str, fetch: Fetch | None = None) -> Boundary:
    """The boundary around everything below a folder.

    Args:
        location: Path or URI of the folder.
        fetch: Opens the https addresses that tables name; None refuses them.

    Raises:
        DatasetError: The scheme is unknown, or the address is malformed.
        MissingPackage: The scheme needs an fsspec package that is not installed.
    """
    place = resolve(location)
    if place.is_local:
        return Boundary(Path(place.path).resolve().as_posix(), None, fetch)
    return Boundary(place.path, location.partition("?")[0].rstrip("/"), fetch)


def _quote_wildcards(location: str) -> str:
    # Brackets and spaces are no legal characters of a URI, but are of a glob and of file names.
    return location.replace("[", "%5B").replace("]", "%5D").replace(" ", "%20")


def _resolve_with_fsspec(location: str, boundary: Boundary | None) -> StoredPath:
    try:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(location)
    except ImportError as error:
        raise MissingPackage(f"{location!r} needs another package: {error}") from error
    except (OSError, ValueError) as error:
        raise DatasetError(
            f"{location!r} is no location this computer can read: {error}; "
            "give a local path or a URI such as s3://bucket/folder"
        ) from error
    return StoredPath(PyFileSystem(FSSpecHandler(filesystem)), path, boundary)


def is_folder(place: StoredPath, location: str) -> bool | None:
    """Whether a place is a folder (True), a file (False) or not there (None).

    Raises:
        DatasetError: The storage refuses to answer.
    """
    try:
        place.require_inside()
        if place.is_local:
            path = Path(place.path)
            return path.is_dir() if path.exists() else None
        kind = place.filesystem.get_file_info(place.path).type
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be read: {error}") from error
    return None if kind == FileType.NotFound else kind == FileType.Directory


def list_folder(place: StoredPath) -> list[Entry]:
    """What is directly in a folder, in no particular order, symbolic links followed.

    Raises:
        OSError: The folder is not there, not readable, or outside of the boundary.
    """
    if not place.is_local:
        place.require_inside()
        infos = place.filesystem.get_file_info(FileSelector(place.path))
        return [(posixpath.basename(info.path), *_kind_and_size(info)) for info in infos]
    if place.boundary is None:
        with os.scandir(place.path) as entries:
            return [(entry.name, *_local_kind_and_size(entry)) for entry in entries]
    descriptor = place.boundary.open_folder(place.path)
    try:
        with os.scandir(descriptor) as entries:
            return [(entry.name, *_local_kind_and_size(entry)) for entry in entries]
    finally:
        os.close(descriptor)


def _local_kind_and_size(entry: "os.DirEntry[str]") -> tuple[bool, int]:
    try:
        return (True, 0) if entry.is_dir() else (False, entry.stat().st_size)
    except OSError:  # a broken link is listed too; opening it gives the reason
        return False, 0


def _kind_and_size(info: FileInfo) -> tuple[bool, int]:
    return info.type == FileType.Directory, info.size or 0


def list_tree(place: StoredPath) -> dict[str, list[Entry]]:
    """Everything below a remote folder in one listing: relative folder to its entries.

    Raises:
        OSError: The folder is not there, not readable, or outside of the boundary.
    """
    place.require_inside()
    folders: dict[str, list[Entry]] = {"": []}
    for info in place.filesystem.get_file_info(FileSelector(place.path, recursive=True)):
        folder, name = posixpath.split(info.path[len(place.path) :].strip("/"))
        folders.setdefault(folder, []).append((name, *_kind_and_size(info)))
    return folders


def open_file(place: StoredPath) -> BinaryIO:
    """Opens a regular file for reading, buffered and seekable; the caller closes it.

    Raises:
        OSError: The file is missing, unreadable, not a regular file, or outside of its boundary.
    """
    if not place.is_local:
        place.require_inside()
        remote = place.filesystem.open_input_file(place.path)
        return io.BufferedReader(remote, buffer_size=READ_AHEAD)
    if place.boundary is not None:
        return place.boundary.open_file(place.path)
    _refuse_irregular(place)
    return Path(place.path).open("rb")


def open_arrow_file(place: StoredPath) -> pa.NativeFile:
    """Opens a regular file for pyarrow's own readers, which read it without Python between.

    Raises:
        OSError: The file is missing, unreadable, not a regular file, or outside of its boundary.
    """
    place.require_inside()
    if place.is_local and place.boundary is not None:
        return pa.PythonFile(place.boundary.open_file(place.path), mode="r")
    if place.is_local:
        _refuse_irregular(place)
    return place.filesystem.open_input_file(place.path)


def _refuse_irregular(place: StoredPath) -> None:
    # Opening a pipe would wait for somebody to write to it.
    if not stat.S_ISREG(Path(place.path).stat().st_mode):
        raise OSError("not a regular file")


def common_folder(files: list[StoredFile]) -> str:
    """The deepest folder that holds all files."""
    return posixpath.commonpath([file.place.parent.path for file in files])
