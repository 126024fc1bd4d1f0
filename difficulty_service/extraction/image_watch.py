"""The images that are being read and decoded at this moment, to find one that never ends."""

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class ImageUnderWay:
    """An image that is being read or decoded."""

    sample_id: str
    seconds: float


class Watch(Protocol):
    """Is told which images are being read and decoded."""

    def working_on(self, sample_id: str) -> AbstractContextManager[None]:
        """Counts an image as under way within the context."""


class Watched(Protocol):
    """Knows which images other processes are working on."""

    @property
    def last_step(self) -> float:
        """Monotonic time at which an image was begun or finished last."""

    def under_way(self) -> Sequence[ImageUnderWay]:
        """The images under way."""


class ImageWatch:
    """Knows which image each thread of this process, and of processes beside it, is working on."""

    def __init__(self) -> None:
        self._began: dict[int, tuple[str, float]] = {}
        self._last_step = time.monotonic()
        self._beside: Watched | None = None

    @property
    def last_step(self) -> float:
        """Monotonic time at which an image was begun or finished last."""
        beside = self._beside
        return self._last_step if beside is None else max(self._last_step, beside.last_step)

    @contextmanager
    def beside(self, others: Watched) -> Iterator[None]:
        """Within the context, also knows the images of other processes."""
        self._beside = others
        try:
            yield
        finally:
            self._last_step, self._beside = self.last_step, None

    def __reduce__(self) -> tuple[type["ImageWatch"], tuple[()]]:
        """Supports pickling; in another process it begins without images."""
        return ImageWatch, ()

    @contextmanager
    def working_on(self, sample_id: str) -> Iterator[None]:
        """Counts an image as under way on the calling thread within the context."""
        thread = threading.get_ident()
        self._last_step = time.monotonic()
        self._began[thread] = (sample_id, self._last_step)
        try:
            yield
        finally:
            del self._began[thread]
            self._last_step = time.monotonic()

    def under_way(self) -> list[ImageUnderWay]:
        """The images under way, the one begun first in front; any thread may ask."""
        now = time.monotonic()
        here = [ImageUnderWay(name, now - since) for name, since in list(self._began.values())]
        there = [] if self._beside is None else self._beside.under_way()
        return sorted([*here, *there], key=lambda image: -image.seconds)
