"""Keeps the cache of features within its size; imports nothing heavy, for the worker itself."""

from contextlib import suppress
from pathlib import Path

PARTS = "*/*.arrow"


def shrink(folder: Path, max_bytes: int, unused_since: float = 0.0) -> int:
    """Deletes files of a cache, those not used for longest first; gives the number of deleted ones.

    At most `max_bytes` remain, and nothing that was not used after `unused_since`, in seconds since
    the epoch.
    """
    files = []
    for file in folder.glob(PARTS):
        with suppress(FileNotFoundError):  # another worker has deleted it
            status = file.stat()
            files.append((status.st_mtime, status.st_size, file))
    size, deleted = sum(size for _, size, _ in files), 0
    for used, file_size, file in sorted(files):
        if size <= max_bytes and used >= unused_since:
            break
        file.unlink(missing_ok=True)
        size, deleted = size - file_size, deleted + 1
    return deleted
