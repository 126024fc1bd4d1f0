"""The images that are being read and decoded at this moment, to find one that never ends."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class ImageUnderWay:
    """An image that is being read or decoded."""

    sample_id: str
    seconds: float


class ImageWatch:
    """Knows which image each thread of this process is working on."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[str, float]] = {}
        self.last_step = time.monotonic()
        """Monotonic time at which an image was begun or finished last."""

    def __reduce__(self) -> tuple[type["ImageWatch"], tuple[()]]:
        """Supports pickling; in another process it begins without images."""
        return ImageWatch, ()

    @contextmanager
    def working_on(self, sample_id: str) -> Iterator[None]:
        """Counts an image as under way on the calling thread within the context."""
        thread = threading.get_ident()
        self.last_step = time.monotonic()
        self._began[thread] = (sample_id, self.last_step)
        try:
            yield
        finally:
            del self._began[thread]
            self.last_step = time.monotonic()

    def under_way(self) -> list[ImageUnderWay]:
        """The images under way, the one begun first in front; any thread may ask."""
        now = time.monotonic()
        began = sorted(self._began.values(), key=lambda entry: entry[1])
        return [ImageUnderWay(sample_id, now - since) for sample_id, since in began]
