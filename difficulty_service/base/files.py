"""Files and folders that appear whole or not at all.

Checks where a command is about to write, before it computes for hours.

Recognises an image by its content, and a file that has not changed without reading it.
"""

import errno
import hashlib
import os
import re
import shutil
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path

from difficulty_service.base.errors import DifficultyError, Setting

NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP}
"""Errors of file systems that have no locks, such as some network drives."""


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary path in the same folder, which is renamed to `path` on success.

    The bytes reach the disk before the rename, so a crash leaves the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(path)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Gives a temporary folder beside `folder`, which is renamed to `folder` on success."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = temporary_path(folder)
    try:
        temporary.mkdir()
        yield temporary
        if folder.exists():
            folder.rmdir()  # not every system replaces an empty folder
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def temporary_path(path: Path) -> Path:
    """A path beside another one that no other process and no other thread of this one uses."""
    return path.with_name(f".{path.name}.{os.getpid()}.{threading.get_native_id()}.part")


def remove_leftovers(folder: Path) -> None:
    """Deletes the temporary files that a killed run has left in a folder."""
    for path in folder.glob(".*.part"):
        if re.fullmatch(r"\..+\.\d+\.part", path.name):
            path.unlink(missing_ok=True)


def require_output_file(path: Path, endings: Collection[str], error: type[DifficultyError]) -> None:
    """Raises the error where a path cannot become a file with one of the endings, in lower case."""
    known = ", ".join(filter(None, endings))
    if path.is_dir():
        example = path / f"NAME{next(iter(endings))}"
        raise error(
            f"{path} is a folder",
            "name a file in it: ",
            Setting("out", str(example)),
            parameter="out",
        )
    if path.suffix.lower() not in endings:
        problem = f"ends in {path.suffix!r}" if path.suffix else "has no ending"
        example = path.with_suffix(next(iter(endings)))
        raise error(
            f"the name {path.name!r} {problem}, expected is {known}",
            "use ",
            Setting("out", str(example)),
            parameter="out",
        )
    above = next((folder for folder in path.parents if folder.exists()), None)
    if above is not None and not above.is_dir():
        raise error(
            f"{above} is a file, so {path} cannot be written in it",
            "use another ",
            Setting("out"),
            parameter="out",
        )


CONTENT_BYTES = 32


def content_digest(data: bytes) -> bytes:
    """SHA-256 of the encoded bytes of an image; nobody can make two images with the same one.

    Takes 2 µs for an image of CIFAR-10 and 60 µs for a photograph of 100 kB, so a weaker hash would
    save nothing.
    """
    return hashlib.sha256(data).digest()


def file_stamp(path: str) -> int | None:
    """64 bits that change with the path, size and times of a file; None if there is no such file.

    The time of the last status change counts besides that of the last modification, because
    programs that copy or unpack files set the latter to that of the original.
    """
    try:
        status = os.stat(path)  # noqa: PTH116 - a Path per image costs more than the call
    except (OSError, ValueError):
        return None
    numbers = f"\0{status.st_size}\0{status.st_mtime_ns}\0{status.st_ctime_ns}"
    return first_64_bits(hashlib.sha256(os.fsencode(path) + numbers.encode()).digest())


def with_sample_id(digest: bytes, sample_id: str) -> bytes:
    """A digest that also changes with a sample's id, on which its random crops depend."""
    return hashlib.sha256(digest + sample_id.encode()).digest()


def first_64_bits(digest: bytes) -> int:
    """The first 64 bits of a digest as a number."""
    return int.from_bytes(digest[:8], "little")


def file_sha256(path: Path) -> str:
    """Hex SHA-256 of the file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
