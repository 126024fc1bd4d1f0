"""The files of a dataset of boxes: its folder, what is below it, and many small ones at once."""

import posixpath
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.folder_tree import visible
from difficulty_service.datasets.json_spans import parsing
from difficulty_service.datasets.storage import (
    Entry,
    StoredPath,
    list_folder,
    list_tree,
    open_file,
    reading,
)

MOST_BYTES = 16 << 20
"""Bytes of a file about the boxes of one image, or about the dataset."""

MOST_FOLDERS = 8
"""Number of single folders around each other in which a dataset is looked for."""

_BOM = b"\xef\xbb\xbf"
_READERS, _READ_AHEAD = 16, 1024
_MOST_DEPTH = 32


def nested(
    place: StoredPath, entries: list[Entry] | None = None
) -> Iterator[tuple[StoredPath, list[Entry]]]:
    """A folder with its visible entries, then the single folder in it, and so on.

    A program that packs or unpacks an archive often makes a folder around the one inside it.
    `entries` are those of the first folder, where they are known.
    """
    for _ in range(MOST_FOLDERS):
        entries = visible(list_folder(place) if entries is None else entries)
        yield place, entries
        folders = [name for name, is_dir, _ in entries if is_dir]
        if len(folders) != 1 or len(entries) > 1:
            return
        place, entries = place.join(folders[0]), None


Found = TypeVar("Found")


def find_folder(
    place: StoredPath,
    location: str,
    find: Callable[[StoredPath, list[Entry]], Found],
) -> tuple[StoredPath, list[Entry], Found]:
    """The folder, of some around each other, in which a function finds a dataset; what it finds.

    Raises:
        DatasetError: It finds nothing, though the format was recognised.
    """
    with reading(repr(location), "listed"):
        for folder, entries in nested(place):
            found = find(folder, entries)
            if found:
                return folder, entries, found
    raise DatasetError.of_location(f"{location!r} has changed while it was read", "try again")


def walk(place: StoredPath, folder: str = "") -> dict[str, int]:
    """Size by path, relative to a place, of the visible files in and below a folder of it."""
    files = dict[str, int]()
    if not place.is_local:
        with reading(repr(place.name), "listed"):
            tree = list_tree(place.join(folder) if folder else place)
        for name, entries in tree.items():
            for file, is_dir, size in visible(entries):
                if not is_dir and not any(part.startswith(".") for part in name.split("/")):
                    files[posixpath.join(folder, name, file)] = size
        return dict(sorted(files.items()))
    pending = [(folder, frozenset[Path]())]
    while pending:
        name, above = pending.pop()
        here = Path(place.join(name).path).resolve()
        if here in above or len(above) > _MOST_DEPTH:  # a link to a folder above
            continue
        with reading(repr(name or place.name), "listed"):
            entries = visible(list_folder(place.join(name)))
        for file, is_dir, size in entries:
            path = posixpath.join(name, file)
            if is_dir:
                pending.append((path, above | {here}))
            else:
                files[path] = size
    return dict(sorted(files.items()))


def read_file(place: StoredPath) -> bytes:
    """The content of a small file; DatasetError where it cannot be read."""
    data = read_or_reason(place)
    if isinstance(data, str):
        raise DatasetError(f"{place.name!r} {data}")
    return data


def read_files(places: Sequence[StoredPath]) -> Iterator[bytes | str]:
    """The contents of many small files, in order, or the reason why one cannot be read."""
    # Of remote storage, each is a request that waits.
    with ThreadPoolExecutor(_READERS) as pool:
        for start in range(0, len(places), _READ_AHEAD):
            yield from pool.map(read_or_reason, places[start : start + _READ_AHEAD])


def read_or_reason(place: StoredPath, most_bytes: int = MOST_BYTES) -> bytes | str:
    """The content of a small file, or the reason why it cannot be read."""
    try:
        with open_file(place) as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"
    return data if len(data) <= most_bytes else f"has more than {most_bytes:,} bytes"


def read_start(place: StoredPath, most_bytes: int) -> bytes:
    """The first bytes of a file; none where it cannot be read."""
    try:
        with open_file(place) as file:
            return file.read(most_bytes)
    except OSError:
        return b""


def read_whole(place: StoredPath, location: str, most_bytes: int) -> bytes:
    """The content of a file about the boxes of all images; DatasetError where it is too large."""
    with reading(repr(location)), open_file(place) as file:
        data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise DatasetError(
            f"{place.name!r} has more than {most_bytes:,} bytes", "split its images into several"
        )
    return data


def read_text(place: StoredPath, location: str, most_bytes: int) -> str:
    """The text of a file; raises DatasetError where it is none, or too large."""
    with parsing(place):
        return read_whole(place, location, most_bytes).decode()


def without_mark(data: bytes) -> bytes:
    """A text without the mark of its encoding, which editors of Windows write before it."""
    return data.removeprefix(_BOM)


def above_both(first: StoredPath, second: StoredPath) -> StoredPath:
    """The deepest folder that two folders are in."""
    return replace(first, path=posixpath.commonpath([first.path, second.path]))


def below(root: StoredPath, place: StoredPath) -> str:
    """The path of a place below a folder; empty where it is elsewhere."""
    path = posixpath.normpath(place.path)
    above = root.path.rstrip("/") + "/"
    return path[len(above) :] if path.startswith(above) else ""
