"""What a program asked of pretended GPUs: how often it waited, and what it copied."""

import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import torch
from torch import Tensor

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = tuple(f"{ROOT / name}/" for name in ("difficulty_service", "trainer", "api"))

WAIT, BLOCKING, FREE = "wait", "blocking copy", "copy"
"""Kinds of events. The program waits for the GPU in the first two, and in the third for nothing."""

STAGED_BYTES = 64 << 10
"""Size up to which CUDA copies pageable memory to a GPU without waiting for the GPU."""

Event = tuple[str, str]
"""The kind of an event, and the operation with the lines of the project that asked for it."""


class Ledger:
    """Counts events, and holds back what the GPU would not have delivered yet."""

    def __init__(self) -> None:
        self.events: Counter[Event] = Counter()
        self._lock = threading.Lock()
        self._underway: list[Callable[[], object]] = []
        self._delivered = 0

    def note(self, kind: str, operation: str) -> None:
        """Counts an event. The GPU has delivered everything once the program has waited for it."""
        with self._lock:
            self.events[kind, f"{operation} at {_place()}"] += 1
        if kind != FREE:
            self.deliver(self.queued)

    def note_event(self, number: int) -> None:
        """Counts a wait for the first so many copies, unless they are there already."""
        if number > self._delivered:
            with self._lock:
                self.events[WAIT, f"event at {_place()}"] += 1
            self.deliver(number)

    @property
    def queued(self) -> int:
        """Number of all copies to the processor that were ever begun without waiting."""
        return self._delivered + len(self._underway)

    def begin_copy(self, target: Tensor, source: Tensor) -> None:
        """Copies memory of a GPU later. Until then the target holds what nobody expects."""
        target.fill_(torch.nan if target.is_floating_point() else 1)
        content = source.clone()
        with self._lock:
            self._underway.append(lambda: target.copy_(content))

    def deliver(self, number: int) -> None:
        """Finishes the first so many of all copies that were ever begun."""
        with self._lock:  # until all are there, for other threads look at how many are
            ready = self._underway[: max(0, number - self._delivered)]
            for finish in ready:
                finish()
            del self._underway[: len(ready)]
            self._delivered += len(ready)


def _place() -> str:
    """The two innermost lines of the project that are being run in this thread."""
    frame: FrameType | None = sys._getframe()
    lines: list[str] = []
    while frame is not None and len(lines) < 2:
        name = frame.f_code.co_filename
        if name.startswith(PACKAGES):
            lines.append(f"{Path(name).relative_to(ROOT)}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(lines) or "a line outside the project"


LEDGER = Ledger()
