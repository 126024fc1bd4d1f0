"""What an extraction may hold in memory where control groups, and so containers, limit it."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from difficulty_service.base.control_groups import memory_limit
from difficulty_service.base.errors import DifficultyError, Setting
from difficulty_service.base.process_setup import give_back_freed_memory
from difficulty_service.base.threads import num_workers

MB = 1 << 20

RUN_BYTES = 640 * MB
"""Bytes that a run holds beside what its threads decode and encode, most of it in libraries."""

THREAD_BYTES = 120 * MB
"""Bytes of a batch of photographs in one thread, with what the network makes of it."""

LEAST_BYTES = RUN_BYTES + THREAD_BYTES

PROCESS_BYTES = 400 * MB
"""Bytes of a process that decodes beside the batches that it shares, most of it in libraries."""

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - not a file, but the memory behind it
"""Where Linux has the memory that processes share; containers get 64 MB unless told otherwise."""

MAX_BYTES_AHEAD, SHARE_AHEAD = 256 * MB, 16
"""Limit of all files that are read ahead: the smaller of this and a share of the memory."""


SHARE_TO_KEEP_BELOW = 5 / 8
"""Share of a limit of memory that a run's own pages may take before freed ones are given back."""


def require_memory(limit: int | None) -> None:
    """Refuses a limit of memory, None for no limit, under which the system would end the run.

    Raises:
        DifficultyError: It is too small.
    """
    if limit is not None and limit < LEAST_BYTES:
        raise DifficultyError(
            f"scoring images takes at least {LEAST_BYTES // MB} MB of memory, and the control "
            f"group of this process, such as a container, is limited to {limit // MB} MB",
            "raise its limit, as by `docker run --memory 1g`, or use the small network ",
            Setting("backbone", "builtin"),
        )


def suitable_workers() -> int:
    """Number of threads that decode and encode at once: of the cores, as many as have memory."""
    limit = memory_limit()
    if limit is None:
        return num_workers()
    return max(1, min(num_workers(), (limit - RUN_BYTES) // THREAD_BYTES))


def fits_processes(processes: int, shared_bytes: int) -> bool:
    """Whether there is memory for processes that decode, and to share so many bytes of images."""
    limit = memory_limit()
    if limit is not None and limit < RUN_BYTES + processes * PROCESS_BYTES + shared_bytes:
        return False
    return not SHARED_MEMORY.is_dir() or shutil.disk_usage(SHARED_MEMORY).free > shared_bytes


def bytes_ahead() -> int:
    """Bytes of all files that may be read ahead."""
    limit = memory_limit()
    return MAX_BYTES_AHEAD if limit is None else min(MAX_BYTES_AHEAD, limit // SHARE_AHEAD)


def freed_memory_keeper() -> Callable[[], None]:
    """A function to call after each batch, so that freed memory stays far below the limit.

    Every thread keeps what it frees in pieces of its own, which together grow beyond the batches
    that are there at a time: after a thousand photographs by as much as these take. Without a limit
    the function does nothing.
    """
    limit = memory_limit()
    if limit is None:
        return lambda: None
    most = SHARE_TO_KEEP_BELOW * limit

    def keep_below() -> None:
        if own_bytes() > most:
            give_back_freed_memory()

    return keep_below


def own_bytes() -> int:
    """Bytes in memory that this process shares with no other and that are no file's."""
    _, resident, shared = map(int, Path("/proc/self/statm").read_text().split()[:3])
    return (resident - shared) * os.sysconf("SC_PAGE_SIZE")
