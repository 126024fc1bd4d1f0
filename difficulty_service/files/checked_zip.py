"""Zip archives, such as those of NumPy and PyTorch, with a checksum as their comment."""

import os
from pathlib import Path

from difficulty_service.files.checksum import (
    LINE_BYTES,
    DamagedFile,
    empty_line,
    fill_in,
    verify_path,
)

END_MAGIC, END_BYTES = b"PK\x05\x06", 22
"""The record at the end of an archive; its last two bytes are the length of the comment."""


def add_checksum(path: Path) -> None:
    """Adds the checksum to an archive that has no comment."""
    with path.open("rb+") as file:
        position = file.seek(-2, os.SEEK_END) + 2
        file.write(LINE_BYTES.to_bytes(2, "little"))
        file.write(empty_line())
    fill_in(path, position)


def verify_zip(path: Path) -> None:
    """Checks the checksum of an archive, if it was written with one.

    Raises:
        DamagedFile: It is lost or does not match.
        OSError: The file cannot be read.
    """
    if verify_path(path) is not None:
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - LINE_BYTES - END_BYTES))
        if file.read(len(END_MAGIC)) == END_MAGIC:
            raise DamagedFile("its checksum is lost")
