"""Measures how long each stage of a pipeline is busy, which shows the bottleneck."""

import io
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from difficulty_service.datasets.sample import ImageOpener


@dataclass(frozen=True)
class StageTime:
    """Busy seconds of one stage, and their share of the time for which its threads existed."""

    name: str
    busy: float
    threads: int
    share: float


class StageClock:
    """Adds up the seconds for which each stage is busy, on any thread.

    Args:
        seconds: Clock of the calling thread.
    """

    def __init__(self, seconds: Callable[[], float] = time.perf_counter) -> None:
        self._seconds = seconds
        self._busy: defaultdict[str, float] = defaultdict(float)
        self._threads: dict[str, int] = {}
        self._lock = threading.Lock()
        self._here = threading.local()
        self._began = time.perf_counter()

    @contextmanager
    def busy(self, stage: str) -> Iterator[None]:
        """Counts the time inside the context as busy time of a stage."""
        began = self._seconds()
        try:
            yield
        finally:
            self.add(stage, self._seconds() - began)

    def add(self, stage: str, seconds: float) -> None:
        """Adds seconds to a stage."""
        with self._lock:
            self._busy[stage] += seconds
        here = self._here.__dict__
        here[stage] = here.get(stage, 0.0) + seconds

    def seconds_here(self, stage: str) -> float:
        """Seconds that the calling thread has added to a stage."""
        return float(self._here.__dict__.get(stage, 0.0))

    def reading(self, opener: ImageOpener, stage: str) -> ImageOpener:
        """An opener that reads the whole image and adds the time to a stage."""

        def read() -> BinaryIO:
            with self.busy(stage), opener() as file:
                return io.BytesIO(file.read())

        return read

    def declare(self, threads: Mapping[str, int]) -> None:
        """Sets the number of threads of some stages; other stages have one."""
        self._threads.update(threads)

    def stages(self) -> list[StageTime]:
        """All stages so far, in the order in which they were declared or first busy."""
        wall = time.perf_counter() - self._began
        return [
            StageTime(name, busy, threads, busy / (wall * threads))
            for name in {**self._threads, **self._busy}
            for busy, threads in [(self._busy.get(name, 0.0), self._threads.get(name, 1))]
        ]
