"""Work on several threads, with results in order and a limit on pending work."""

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, nullcontext
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

RECENT_PIECES = 8
"""Number of recent pieces of work whose duration decides whether threads take turns."""


def num_workers() -> int:
    """Number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    initializer: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Applies `function` on `workers` threads; yields results in order, with `workers` + 1 pending.

    The calling thread consumes `items`, one for each result that it takes.
    """
    remaining = iter(items)
    with ThreadPoolExecutor(workers, initializer=initializer) as pool:
        pending: list[Future[Result]] = [
            pool.submit(function, item) for item in islice(remaining, workers + 1)
        ]
        while pending:
            result = pending.pop(0).result()
            pending.extend(pool.submit(function, item) for item in islice(remaining, 1))
            yield result


def map_in_turns(
    function: Callable[[Item], Result],
    turns: Iterable[Sequence[Item]],
    workers: int,
    initializer: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Like `map_in_order`, but the threads and the caller take turns at the cores.

    For callers that need every core themselves: a turn is complete before its first result is
    yielded, and the next turn starts when the last result has been used. The threads, and the heap
    memory that each of them holds, live for all turns.
    """
    with ThreadPoolExecutor(workers, initializer=initializer) as pool:
        for turn in turns:
            results = [pool.submit(function, item) for item in turn]
            try:
                # Waits once per turn, so that this thread does not wake up for every result.
                wait(results, return_when=FIRST_EXCEPTION)
                yield from [result.result() for result in results]
            finally:
                for result in results:
                    result.cancel()


class OneByOne:
    """Lets threads run short pieces of Python code one at a time, and long pieces concurrently.

    Threads that pass the interpreter's lock back and forth at every call take longer for such work
    than a single thread, and delay other threads. Long pieces release that lock for most of their
    time, to decode a photograph or to wait for a disk.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recent_long = deque([False] * RECENT_PIECES, maxlen=RECENT_PIECES)

    @contextmanager
    def piece(self, seconds: float) -> Iterator[None]:
        """Runs a piece of work, which counts as long if it takes more than `seconds`.

        Waits for its turn unless most recent pieces were long, as a single one may be by chance.
        """
        mostly_long = sum(self._recent_long) > RECENT_PIECES // 2
        with nullcontext() if mostly_long else self._lock:
            began = time.perf_counter()
            yield
            self._recent_long.append(time.perf_counter() - began > seconds)


def one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yields the same items, each after the next one has been produced."""
    remaining = iter(items)
    for before in islice(remaining, 1):
        for item in remaining:
            yield before
            before = item
        yield before
