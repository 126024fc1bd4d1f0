"""Encoded images that are read before they are asked for, where storage is slow to answer."""

import io
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import BinaryIO, Self

from difficulty_service.datasets.sample import ImageOpener

READERS = 8
"""Threads that read: enough for storage that takes long to answer; they need no core."""

SLOW_READ = 2e-3
"""Mean seconds of a read from which on it pays; where files are in memory, readers only disturb."""

WEIGHT_OF_LATEST = 0.05
"""Of a read in that mean."""

LARGEST_FILE, BYTES_AHEAD = 8 << 20, 256 << 20
"""Larger files, and what would be more than this together, are read when they are asked for."""


class ReadAhead:
    """Reads images on threads of its own; leaving the context ends them."""

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
        """Begins to read an image, if those before it took long.

        Returns:
            Opens the same image; raises what the opener given raises.
        """
        coming: list[Future[bytes | None]] = []
        if self._mean_seconds > SLOW_READ:
            coming.append(self._pool.submit(self._read_and_hold, opener))

        def open_read() -> BinaryIO:
            if not coming:
                data = self._read(opener)
            else:
                data = coming.pop().result()  # popped, so that it is not kept
                self._add_held(-len(data or b""))
            return opener() if data is None else io.BytesIO(data)

        return open_read

    def _read_and_hold(self, opener: ImageOpener) -> bytes | None:
        data = self._read(opener) if self._held < BYTES_AHEAD else None
        self._add_held(len(data or b""))
        return data

    def _read(self, opener: ImageOpener) -> bytes | None:
        """The file whole, or None if it is a large one."""
        began = time.perf_counter()
        with opener() as file:
            data = file.read(LARGEST_FILE + 1)
        seconds = time.perf_counter() - began
        with self._lock:
            self._mean_seconds += WEIGHT_OF_LATEST * (seconds - self._mean_seconds)
        return data if len(data) <= LARGEST_FILE else None

    def _add_held(self, num_bytes: int) -> None:
        with self._lock:
            self._held += num_bytes
