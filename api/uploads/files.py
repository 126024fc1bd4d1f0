"""The files of uploads: streamed to disk, resumable, never unpacked."""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from api.settings import Settings


def upload_path(settings: Settings, upload_id: str, format_name: str) -> Path:
    """The file of an upload, complete or not."""
    return settings.upload_dir / f"{upload_id}.{format_name}"


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Opens the file of an upload with an exclusive lock; creates it if needed.

    Raises:
        BlockingIOError: Another request holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        # The lock ends with its process, so a killed server leaves no upload locked.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        # Not left to closing: a process that another thread is just starting has a copy of the
        # descriptor until its program runs, and the lock would last as long.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextmanager
def appending(path: Path, offset: int, confirm: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Opens the file of an upload to resume at an offset; truncates what follows.

    Args:
        path: Path of the file, which is created if needed.
        offset: Position to resume at, at most the size of the file.
        confirm: Called with the lock held; raises if the offset is not right.

    Yields:
        A descriptor at the offset.

    Raises:
        BlockingIOError: Another request is appending to it.
        ValueError: The file ends before the offset.
    """
    with locked(path) as descriptor:
        confirm()
        if os.fstat(descriptor).st_size < offset:
            raise ValueError(f"the file ends before byte {offset}")
        # Bytes that an interrupted request wrote but did not record are sent again.
        os.ftruncate(descriptor, offset)
        os.lseek(descriptor, offset, os.SEEK_SET)
        yield descriptor
        os.fsync(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes, in several calls if necessary."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def sha256_of(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def delete_upload_file(settings: Settings, upload_id: str, format_name: str) -> None:
    """Deletes the file of an upload, if there is one."""
    upload_path(settings, upload_id, format_name).unlink(missing_ok=True)
