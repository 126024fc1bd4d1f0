"""One command at a time writes to a folder of features."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from difficulty_service.errors import FeatureStoreError, Setting

LOCK_FILE = ".lock"
NO_LOCKS = {errno.ENOLCK, errno.ENOTSUP}
"""Errors of file systems that have no locks, such as some network drives."""


@contextmanager
def sole_writer(folder: Path) -> Iterator[None]:
    """Keeps other commands from writing features to a folder meanwhile.

    The system frees the lock of a process that ends, however it ends. A file system without locks
    lets every command write.

    Args:
        folder: Folder of a feature store, which is created where it does not exist.

    Raises:
        FeatureStoreError: Another command is writing there, or `folder` is a file.
    """
    if folder.exists() and not folder.is_dir():
        raise FeatureStoreError(
            f"{folder} is a file, but features are kept in a folder",
            "use another ",
            Setting("out"),
            parameter="out",
        )
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE, timeout=0)
    try:
        lock.acquire()
    except Timeout:
        raise FeatureStoreError(
            f"another command is writing features to {folder}",
            "wait for it, or use another ",
            Setting("out"),
            parameter="out",
        ) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    try:
        yield
    finally:
        lock.release()
