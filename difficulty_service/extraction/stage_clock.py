"""How long each stage of a pipeline was busy, and so which one sets its rate."""

import io
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO

from difficulty_service.datasets.sample import ImageOpener


@dataclass(frozen=True)
class StageTime:
    """One stage.

    Attributes:
        name: What it does.
        busy: Seconds, of all its threads together.
        threads: That share it.
        share: Of the time that its threads could have been busy, 0 to 1.
    """

    name: str
    busy: float
    threads: int
    share: float


class StageClock:
    """Adds up the seconds that stages are busy, on whatever thread."""

    def __init__(self) -> None:
        self._busy: defaultdict[str, float] = defaultdict(float)
        self._threads: dict[str, int] = {}
        self._lock = threading.Lock()
        self._here = threading.local()
        self._began = time.perf_counter()

    @contextmanager
    def busy(self, stage: str) -> Iterator[None]:
        """Inside, the stage is busy."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.add(stage, time.perf_counter() - began)

    def add(self, stage: str, seconds: float) -> None:
        """Adds seconds to a stage."""
        with self._lock:
            self._busy[stage] += seconds
        here = self._here.__dict__
        here[stage] = here.get(stage, 0.0) + seconds

    def seconds_here(self, stage: str) -> float:
        """What the calling thread has added to a stage."""
        return float(self._here.__dict__.get(stage, 0.0))

    def reading(self, opener: ImageOpener, stage: str) -> ImageOpener:
        """The opener of the same image, read whole on the account of a stage."""

        def read() -> BinaryIO:
            with self.busy(stage), opener() as file:
                return io.BytesIO(file.read())

        return read

    def declare(self, threads: Mapping[str, int]) -> None:
        """Says how many threads each of some stages has; a stage not named has one."""
        self._threads.update(threads)

    def stages(self) -> list[StageTime]:
        """What was measured until now, in the order in which stages were declared or first busy."""
        wall = time.perf_counter() - self._began
        return [
            StageTime(name, busy, threads, busy / (wall * threads))
            for name in {**self._threads, **self._busy}
            for busy, threads in [(self._busy.get(name, 0.0), self._threads.get(name, 1))]
        ]
