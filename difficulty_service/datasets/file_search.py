"""The files of a location: a single file, the files in a folder, or the matches of a glob."""

import fnmatch
import glob
import posixpath
import re
from pathlib import Path

from pyarrow.fs import FileSelector, FileType

from difficulty_service.datasets.boundary import Boundary
from difficulty_service.datasets.storage import (
    StoredFile,
    StoredPath,
    is_folder,
    list_folder,
    resolve,
)
from difficulty_service.errors import DatasetError

_WILDCARD = re.compile(r"[*?[]")


def find_files(location: str, boundary: Boundary | None = None) -> list[StoredFile]:
    """The files at a location, directly in a folder or matching a glob, sorted by path.

    Args:
        location: Path, URI or glob.
        boundary: Root outside which nothing may be read. Matches of a glob in folders outside are
            ignored, so that their names are not disclosed.

    Raises:
        DatasetError: There is no file, no match, or a file is outside the boundary.
    """
    place = resolve(location, boundary)
    try:
        files = _find(place, location)
        if boundary is not None:
            files = [f for f in files if _is_inside(f.place.parent) or _is_inside(f.place)]
            for file in files:
                file.place.require_inside()
    except (OSError, ValueError) as error:
        raise DatasetError(f"{location!r} cannot be read: {error}") from error
    if files:
        return sorted(files, key=lambda file: file.place.path)
    if _WILDCARD.search(place.path):
        raise DatasetError(
            f"no file matches {location!r}",
            "check the folder and the pattern",
            parameter="location",
        )
    raise DatasetError(
        f"{location!r} does not exist", "check the path or URI", parameter="location"
    )


def _is_inside(place: StoredPath) -> bool:
    try:
        place.require_inside()
    except PermissionError:
        return False
    return True


def _find(place: StoredPath, location: str) -> list[StoredFile]:
    folder = is_folder(place, location)
    if folder:
        return [
            StoredFile(place.join(name), size)
            for name, is_dir, size in list_folder(place)
            if not is_dir and not name.startswith(".")
        ]
    if folder is not None:
        return [StoredFile(place, _size(place))]
    if not _WILDCARD.search(place.path):
        return []
    if place.is_local:
        matches = (Path(path) for path in glob.glob(place.path, recursive=True))  # noqa: PTH207
        return [
            StoredFile(
                StoredPath(place.filesystem, path.as_posix(), place.boundary), path.stat().st_size
            )
            for path in matches
            if path.is_file()
        ]
    return _glob_remote(place)


def _size(place: StoredPath) -> int:
    return int(place.filesystem.get_file_info(place.path).size or 0)


def _glob_remote(place: StoredPath) -> list[StoredFile]:
    start = _WILDCARD.search(place.path)
    base = posixpath.dirname(place.path[: start.start()]) if start else place.path
    pattern = place.path[len(base) :].strip("/").split("/")
    selector = FileSelector(base, allow_not_found=True, recursive=len(pattern) > 1)
    return [
        StoredFile(StoredPath(place.filesystem, info.path, place.boundary), info.size)
        for info in place.filesystem.get_file_info(selector)
        if info.type == FileType.File
        and _matches(info.path[len(base) :].strip("/").split("/"), pattern)
    ]


def _matches(parts: list[str], pattern: list[str]) -> bool:
    """Whether path parts match glob parts; `**` stands for any number of folders."""
    if not parts or not pattern:
        return not parts and not pattern
    if pattern[0] == "**":
        return _matches(parts, pattern[1:]) or _matches(parts[1:], pattern)
    hidden = parts[0].startswith(".") and not pattern[0].startswith(".")
    same = not hidden and fnmatch.fnmatchcase(parts[0], pattern[0])
    return same and _matches(parts[1:], pattern[1:])
