"""Reads the files of NumPy: without pickles, and with one kind of error for every kind of damage.

NumPy and its reader of zip archives raise a dozen kinds of errors for damaged files, among them
those of its parser for headers.
"""

import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.npyio import NpzFile
from numpy.typing import NDArray

from difficulty_service.base.checksums import DamagedFile
from difficulty_service.base.errors import DifficultyError

MAX_RATIO = 200
"""How much a large array may unpack to; numbers that were measured hardly shrink."""

LARGE_ARRAY = 1 << 30  # bytes


def read_array(path: Path, *, mapped: bool = False) -> NDArray[Any]:
    """The array of an `.npy` file, read into memory or mapped.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFile: It is not one array of numbers or text.
    """
    with _told(), path.open("rb") as file:
        source = path if mapped else file
        array: Any = np.load(source, mmap_mode="r" if mapped else None, allow_pickle=False)
        if isinstance(array, NpzFile):
            array.close()
            raise DamagedFile("it is an archive of arrays, expected one array")
        return _characters_checked(array)


def read_arrays(
    path: Path, choose: Callable[[Sequence[str]], Sequence[str]]
) -> dict[str, NDArray[Any]]:
    """Those arrays of an `.npz` file that are chosen by the names of all, in memory.

    Raises:
        FileNotFoundError: There is no such file.
        DamagedFile: It is not an archive of arrays, an array is not of numbers or text, or it
            unpacks to more than memory should be taken for.
        DifficultyError: As `choose` raises it.
    """
    # If the archive is damaged, NumPy does not close a file that it opened itself.
    with _told(), path.open("rb") as file:
        archive: Any = np.load(file, allow_pickle=False)
        if not isinstance(archive, NpzFile):
            raise DamagedFile("it is one array, expected an archive of arrays")
        with archive:
            names = list(choose(archive.files))
            for name in names:
                _require_size(archive.zip, name)  # type: ignore[arg-type]  # None once it is closed
            return {name: _characters_checked(archive[name]) for name in names}


def _characters_checked(array: NDArray[Any]) -> NDArray[Any]:
    """The array; Python fails on numbers that are no characters."""
    if array.dtype.kind == "U" and array.size and array.dtype.itemsize:
        numbers = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).view(np.uint32)
        if numbers.max() > sys.maxunicode:
            raise DamagedFile("a text in it has a number that is no character")
    return array


def _require_size(archive: zipfile.ZipFile, name: str) -> None:
    stored = {each.filename: each for each in archive.infolist()}
    member = stored.get(f"{name}.npy") or stored[name]
    if member.file_size > max(LARGE_ARRAY, MAX_RATIO * member.compress_size):
        raise DamagedFile(
            f"its array {name!r} has {member.compress_size:,} bytes that unpack to "
            f"{member.file_size:,}; save it without compression if that is right"
        )


@contextmanager
def _told() -> Iterator[None]:
    """Tells of whatever is raised within as damage, in one line."""
    try:
        yield
    except (FileNotFoundError, DamagedFile, DifficultyError):
        raise
    except Exception as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise DamagedFile(reason) from error
