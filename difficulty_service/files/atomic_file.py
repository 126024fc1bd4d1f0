"""Files and folders that appear whole or not at all."""

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Gives a temporary path in the same folder, which is renamed to `path` on success.

    The bytes reach the disk before the rename, so a crash leaves the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Gives a temporary folder beside `folder`, which is renamed to `folder` on success.

    Args:
        folder: A folder that does not exist or is empty.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.part")
    try:
        temporary.mkdir()
        yield temporary
        if folder.exists():
            folder.rmdir()  # not every system replaces an empty folder
        temporary.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def remove_leftovers(folder: Path) -> None:
    """Deletes the temporary files that a killed run has left in a folder."""
    for path in folder.glob(".*.part"):
        if re.fullmatch(r"\..+\.\d+\.part", path.name):
            path.unlink(missing_ok=True)
