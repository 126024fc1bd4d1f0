"""Access to local and remote files: resolving locations, listing folders, opening files.

A location is a local path or a URI of a file system of pyarrow (`s3://`, `gs://`, `hdfs://`,
`abfs://`, `file://`) or otherwise of fsspec. The wildcards of a glob are `*`, `[...]` and `**`; a
local glob may also use `?`, which starts the query in a URI.

S3-compatible servers are configured as for the AWS tools, through AWS_ENDPOINT_URL,
AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_DEFAULT_REGION, or in the URI itself:
`s3://bucket/photos?endpoint_override=127.0.0.1:9000&scheme=http&region=us-east-1`.

The boundary of a dataset that is read on behalf of another user: nothing outside is opened.

By default there is no boundary and a dataset may refer to any file, because the user who names it
can read the same files. With a boundary, a link, an absolute path, a URI or a `..` that leads
outside is refused when it is opened, with OUTSIDE as the reason.
"""

import io
import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, unquote

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

from difficulty_service.base.errors import DatasetError, MissingPackage

OUTSIDE = "it is outside the dataset's root"

Fetch = Callable[[str], BinaryIO]
"""Function that opens the image at an https address; raises ImageError."""


@dataclass(frozen=True)
class Boundary:
    """A folder or file outside which nothing may be read; made by `storage.boundary_at`.

    Attributes:
        root: Absolute path of the root in the form of its file system; a local one has no links.
        uri: URI of a remote root without its query; None for a local root.
        fetch: Function that opens https addresses in tables; None to refuse them.
    """

    root: str
    uri: str | None = None
    fetch: Fetch | None = None

    @property
    def is_local(self) -> bool:
        """Whether the root is in the local file system."""
        return self.uri is None

    def require(self, path: str, *, is_local: bool) -> str:
        """The path, without links if it is local; raises PermissionError where it is outside."""
        if is_local != self.is_local:
            raise PermissionError(OUTSIDE)
        if is_local:
            path = os.path.realpath(path)
        elif {"..", "."} & set(unquote(path).replace("\\", "/").split("/")):
            # Storage that resolves these parts, encoded or not, would leave the folder.
            raise PermissionError(OUTSIDE)
        if path != self.root and not path.startswith(self.root.rstrip("/") + "/"):
            raise PermissionError(OUTSIDE)
        return path

    def open_file(self, path: str) -> BinaryIO:
        """Opens a regular local file inside; safe against links that change at the same time."""
        descriptor = self._open(path, os.O_NONBLOCK)  # opening a pipe would block
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise OSError("not a regular file")
        return os.fdopen(descriptor, "rb")

    def open_folder(self, path: str) -> int:
        """Opens a descriptor of a local folder inside; the caller closes it."""
        return self._open(path, os.O_DIRECTORY)

    def _open(self, path: str, flags: int) -> int:
        """Opens the path folder by folder from the root and follows no link on the way."""
        real = self.require(path, is_local=True)
        if real == self.root:  # the root may be a single file
            return os.open(real, os.O_RDONLY | os.O_NOFOLLOW | flags)
        *folders, name = Path(os.path.relpath(real, self.root)).parts
        current = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for folder in folders:
                deeper = os.open(
                    folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=current
                )
                os.close(current)
                current = deeper
            return os.open(name, os.O_RDONLY | os.O_NOFOLLOW | flags, dir_fd=current)
        finally:
            os.close(current)


READ_AHEAD = 8 << 20
"""Bytes of one request to remote storage, which adjacent small reads share."""

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")

Entry = tuple[str, bool, int]
"""Name inside its folder, whether the entry is a folder, and size in bytes."""


@dataclass(frozen=True)
class StoredPath:
    """A path in a file system, as resolved from a location.

    Attributes:
        boundary: Root outside which nothing may be read; None for no restriction.
    """

    filesystem: FileSystem
    path: str
    boundary: Boundary | None = None

    @property
    def is_local(self) -> bool:
        """Whether the path is in the local file system."""
        return isinstance(self.filesystem, LocalFileSystem)

    @property
    def name(self) -> str:
        """Last part of the path."""
        return posixpath.basename(self.path.rstrip("/"))

    @property
    def parent(self) -> "StoredPath":
        """Folder that contains the path."""
        return StoredPath(self.filesystem, posixpath.dirname(self.path.rstrip("/")), self.boundary)

    def join(self, relative: str) -> "StoredPath":
        """A path below this one."""
        return StoredPath(self.filesystem, posixpath.join(self.path, relative), self.boundary)

    def require_inside(self) -> None:
        """Raises PermissionError if the path is outside its boundary."""
        if self.boundary is not None:
            self.boundary.require(self.path, is_local=self.is_local)

    @property
    def is_inside(self) -> bool:
        """Whether the path is inside its boundary."""
        try:
            self.require_inside()
        except (PermissionError, ValueError):  # a path with a null character is of no file
            return False
        return True


@dataclass(frozen=True)
class StoredFile:
    """One file of a dataset."""

    place: StoredPath
    size: int


def is_uri(location: str) -> bool:
    """Whether a location starts with a scheme, such as `s3://`."""
    return _URI.match(location) is not None


LITERAL = "*[]!$&'()+,;=:@~ "
"""Characters of a part of a URI that `resolve` takes literally."""


def location_below(location: str, name: str) -> str:
    """The location of something in the folder at a location; a URI keeps its query."""
    if not is_uri(location):
        return posixpath.join(location, name)
    folder, question_mark, query = location.partition("?")
    return f"{folder.rstrip('/')}/{quote(name, safe=LITERAL)}{question_mark}{query}"


def resolve(location: str, boundary: Boundary | None = None) -> StoredPath:
    """Resolves a location to a file system and a path, without any access to it.

    Raises:
        DatasetError: The scheme is unknown, or the address is malformed.
        MissingPackage: The scheme needs an fsspec package that is not installed.
    """
    if not is_uri(location):
        return StoredPath(LocalFileSystem(), Path(location).absolute().as_posix(), boundary)
    try:
        # Brackets, braces and spaces are not legal in a URI, but occur in globs and file names.
        quoted = location
        for character in "[]{} ":
            quoted = quoted.replace(character, quote(character))
        filesystem, path = FileSystem.from_uri(quoted)
    except pa.ArrowInvalid:
        return _resolve_with_fsspec(location, boundary)
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be reached: {error}") from error
    return StoredPath(filesystem, path.rstrip("/") or "/", boundary)


def boundary_at(location: str, fetch: Fetch | None = None) -> Boundary:
    """A boundary with a folder as its root."""
    place = resolve(location)
    if place.is_local:
        return Boundary(Path(place.path).resolve().as_posix(), None, fetch)
    return Boundary(place.path, location.partition("?")[0].rstrip("/"), fetch)


def _resolve_with_fsspec(location: str, boundary: Boundary | None) -> StoredPath:
    try:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(location)
    except ImportError as error:
        raise MissingPackage(
            f"{location!r} needs a package that is not installed: {error}", parameter="location"
        ) from error
    except (OSError, ValueError) as error:
        raise DatasetError.of_location(
            f"{location!r} is not a location that this computer can read: {error}",
            "give a local path or a URI such as s3://bucket/folder",
        ) from error
    return StoredPath(PyFileSystem(FSSpecHandler(filesystem)), path, boundary)


@contextmanager
def reading(what: str, action: str = "read") -> Iterator[None]:
    """Raises DatasetError where storage fails, as in "'photos' cannot be read"."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise DatasetError(f"{what} cannot be {action}: {error}") from error


def is_folder(place: StoredPath, location: str) -> bool | None:
    """Whether a path is a folder (True), a file (False) or does not exist (None)."""
    with reading(repr(location)):
        place.require_inside()
        if place.is_local:
            path = Path(place.path)
            return path.is_dir() if path.exists() else None
        kind = place.filesystem.get_file_info(place.path).type
    return None if kind == FileType.NotFound else kind == FileType.Directory


def list_folder(place: StoredPath, most: int | None = None) -> list[Entry]:
    """The entries directly in a folder, in no particular order; follows symbolic links.

    Or at most some of them, without links that lead out, and without sizes where it is local.

    Raises:
        OSError: The folder does not exist, is not readable, or is outside the boundary.
    """
    if not place.is_local:
        place.require_inside()
        infos = place.filesystem.get_file_info(FileSelector(place.path))[:most]
        return [(posixpath.basename(info.path), *_kind_and_size(info)) for info in infos]
    folder = place.path if place.boundary is None else place.boundary.open_folder(place.path)
    try:
        with os.scandir(folder) as entries:
            if most is None:
                return [(entry.name, *_local_kind_and_size(entry)) for entry in entries]
            return [
                (each.name, *(_local_kind_and_size(each) if link else (each.is_dir(), 0)))
                for each in islice(entries, most)
                if not (link := each.is_symlink()) or place.join(each.name).is_inside
            ]
    finally:
        if isinstance(folder, int):
            os.close(folder)


def _local_kind_and_size(entry: "os.DirEntry[str]") -> tuple[bool, int]:
    try:
        return (True, 0) if entry.is_dir() else (False, entry.stat().st_size)
    except OSError:  # a broken link is listed as well; opening it raises the reason
        return False, 0


def _kind_and_size(info: FileInfo) -> tuple[bool, int]:
    return info.type == FileType.Directory, info.size or 0


def list_tree(place: StoredPath) -> dict[str, list[Entry]]:
    """The entries of all folders below a remote folder, by relative path, in one request."""
    place.require_inside()
    folders: dict[str, list[Entry]] = {"": []}
    for info in place.filesystem.get_file_info(FileSelector(place.path, recursive=True)):
        folder, name = posixpath.split(info.path[len(place.path) :].strip("/"))
        folders.setdefault(folder, []).append((name, *_kind_and_size(info)))
    return folders


def open_file(place: StoredPath) -> BinaryIO:
    """Opens a regular file for reading, buffered and seekable; the caller closes it.

    Raises:
        OSError: The file is missing, unreadable, not a regular file, or outside its boundary.
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
    """Opens a regular file for the readers of pyarrow, which bypass Python's file objects."""
    place.require_inside()
    if place.is_local and place.boundary is not None:
        return pa.PythonFile(place.boundary.open_file(place.path), mode="r")
    if place.is_local:
        _refuse_irregular(place)
    return place.filesystem.open_input_file(place.path)


def _refuse_irregular(place: StoredPath) -> None:
    # Opening a pipe would block until another process writes to it.
    if not stat.S_ISREG(Path(place.path).stat().st_mode):
        raise OSError("not a regular file")


def common_folder(files: list[StoredFile]) -> str:
    """Deepest folder that contains all files."""
    return posixpath.commonpath([file.place.parent.path for file in files])
