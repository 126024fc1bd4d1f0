"""Results that take a while and are made when they are first asked for, one at a time.

Each is made in a process of low priority with one thread and limits of memory and time. What is
found is stored by whoever asked for it once it is complete, so whatever ends the process or the
server costs no more than a new beginning when somebody asks again.
"""

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import structlog

from difficulty_service.base.apart import Child

NICENESS = 10
MAX_FAILURES = 1000  # that are remembered, each with a sentence


@dataclass(frozen=True)
class SearchProgress:
    """How far a result is."""

    share: float = 0.0  # between 0 and 1; 0 also while it waits for another
    failure: str | None = None  # why there will be none; None as long as there may


@dataclass(frozen=True)
class Refusal:
    """Why a process has no result."""

    reason: str


@dataclass(frozen=True)
class Work:
    """What a process does: it sends shares as floats, then a result or a `Refusal`.

    Attributes:
        serve: Function of a module, with its ends of the connections as the first argument.
        max_memory: Bytes of data that it may have.
        seconds: After which it is killed; None for no limit.
    """

    serve: Callable[..., None]
    arguments: tuple[object, ...]
    max_memory: int
    seconds: float | None = None


@dataclass(eq=False)
class _Request:
    """One time that a result was asked for; another one may follow when it was stopped."""

    progress: SearchProgress = field(default_factory=SearchProgress)


@dataclass
class OneByOne:
    """Makes one result at a time and tells how far each of them is; each has a name."""

    task: str
    most_waiting: int
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _pending: dict[str, _Request] = field(default_factory=dict)
    _failures: dict[str, SearchProgress] = field(default_factory=dict)
    _child: Child | None = None
    _running: str = ""
    _closed: bool = False

    def __post_init__(self) -> None:
        """Starts no thread yet; the first result does."""
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=self.task)

    def known(self, name: str) -> SearchProgress | None:
        """How far a result is that is being made, waits or has failed; None for any other."""
        with self._lock:
            pending = self._pending.get(name)
            return pending.progress if pending else self._failures.get(name)

    def pending(self) -> Sequence[str]:
        """The names of the results that wait or are being made."""
        with self._lock:
            return list(self._pending)

    def begin(self, name: str, make: Callable[[], str | None]) -> bool:
        """Has a result made, unless it is being made or waits; False where too many wait.

        Args:
            make: Makes and stores it by `run`; gives why there is none, or None.
        """
        with self._lock:
            if name in self._pending:
                return True
            if len(self._pending) >= self.most_waiting:
                return False
            self._failures.pop(name, None)
            self._pending[name] = request = _Request()
            self._pool.submit(self._make, name, request, make)
        return True

    def stop(self, name: str) -> None:
        """Forgets a result that failed, waits or is being made."""
        with self._lock:
            self._failures.pop(name, None)
            self._pending.pop(name, None)
            if self._running == name and self._child is not None:
                self._child.kill()

    def close(self) -> None:
        """Ends what is being made; it is begun again when somebody asks."""
        with self._lock:
            self._closed = True
            if self._child is not None:
                self._child.kill()
        self._pool.shutdown(cancel_futures=True)

    def run(self, name: str, work: Work) -> Any:  # noqa: ANN401 - whatever the process sends
        """What a process finds, or a `Refusal`; `begin` calls it by way of `make`."""
        with self._lock:
            if self._closed:
                return Refusal("the server stops")
            child = Child(work.serve, *work.arguments, max_memory=work.max_memory)
            self._child, self._running = child, name
        late = threading.Event()

        def end() -> None:
            late.set()
            child.kill()

        timer = threading.Timer(work.seconds or threading.TIMEOUT_MAX, end)
        timer.daemon = True
        if work.seconds is not None:
            timer.start()
        (connection,) = child.connections
        try:
            while isinstance(message := connection.recv(), float):
                with self._lock:
                    if name in self._pending:
                        self._pending[name].progress = SearchProgress(message)
        except (EOFError, OSError):
            child.finish()
            if late.is_set():
                return Refusal(f"it took more than {work.seconds:,.0f} s")
            return Refusal(f"its process was ended {child.ending}")
        else:
            child.close()
            return message
        finally:
            timer.cancel()
            with self._lock:
                self._child, self._running = None, ""

    def _make(self, name: str, request: _Request, make: Callable[[], str | None]) -> None:
        with self._lock:
            if self._pending.get(name) is not request:  # it was stopped
                return
        try:
            failure = make()
        except Exception as error:  # noqa: BLE001 - whoever asks is told
            structlog.get_logger().error(f"{self.task}-failed", name=name, exc_info=error)
            failure = f"the server could not make it ({type(error).__name__})"
        with self._lock:
            if self._pending.get(name) is not request:  # it was stopped, and may be asked for again
                return
            del self._pending[name]
            if failure is None or self._closed:
                return
            if len(self._failures) >= MAX_FAILURES:
                self._failures.pop(next(iter(self._failures)))
            self._failures[name] = SearchProgress(failure=failure)


def answer(
    connections: Sequence[Connection], find: Callable[[Callable[[float], None]], Any]
) -> None:
    """Sends what a function finds, in a process of `Work`; it is given what tells its share.

    Raises:
        Exception: That of the function.
    """
    from threadpoolctl import threadpool_limits

    os.nice(NICENESS)
    (connection,) = connections
    with suppress(OSError), threadpool_limits(1):  # the parent has ended
        connection.send(find(connection.send))
