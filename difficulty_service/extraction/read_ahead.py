"""Reads encoded images in advance where storage is slow to respond."""

import io
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO, Self

from difficulty_service.datasets.sample import ImageOpener

READERS = 8
"""Number of threads that read; they wait for storage most of the time and need no core."""

SLOW_READ = 2e-3
"""Mean seconds per read above which reading ahead pays; it slows down files that are in memory."""

LATEST_READ_WEIGHT = 0.05
"""Weight of the latest read in that mean."""

MAX_FILE_BYTES, MAX_BYTES_AHEAD = 8 << 20, 256 << 20
"""Limits for one file and for all files read ahead; others are read when they are opened."""


class ReadAhead:
    """Reads images on threads of its own; leaving the context ends the threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(READERS, thread_name_prefix="read-ahead")
        self._lock = threading.Lock()
        self._held = 0
        self._mean_seconds = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._pool.shutdown(cancel_futures=True)

    def begin(self, opener: ImageOpener) -> ImageOpener:
        """Starts to read an image, if the reads before it were slow.

        Returns:
            An opener of the same image; raises what `opener` raises.
        """
        pending: list[Future[bytes | None]] = []
        if self._mean_seconds > SLOW_READ:
            pending.append(self._pool.submit(self._read_and_hold, opener))

        def open_read() -> BinaryIO:
            if not pending:
                data = self._read(opener)
            else:
                data = pending.pop().result()  # popped, so that the bytes are freed after use
                self._add_held(-len(data or b""))
            return opener() if data is None else io.BytesIO(data)

        return open_read

    def _read_and_hold(self, opener: ImageOpener) -> bytes | None:
        data = self._read(opener) if self._held < MAX_BYTES_AHEAD else None
        self._add_held(len(data or b""))
        return data

    def _read(self, opener: ImageOpener) -> bytes | None:
        """The whole file, or None if it is larger than the limit."""
        began = time.perf_counter()
        with opener() as file:
            data = file.read(MAX_FILE_BYTES + 1)
        seconds = time.perf_counter() - began
        with self._lock:
            self._mean_seconds += LATEST_READ_WEIGHT * (seconds - self._mean_seconds)
        return data if len(data) <= MAX_FILE_BYTES else None

    def _add_held(self, num_bytes: int) -> None:
        with self._lock:
            self._held += num_bytes
