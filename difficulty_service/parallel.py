"""Work on several threads, with results in order and a bound on what is under way."""

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

LATEST_PIECES = 8


def num_workers() -> int:
    """Cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_order(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    workers: int,
    initializer: Callable[[], None] | None = None,
) -> Generator[Result, None, None]:
    """Applies `function` on `workers` threads; yields in order, at most `workers` + 1 pending.

    `items` is consumed in the calling thread, one ahead of each result.
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
    """As `map_in_order`, but the threads rest while results are used, and the user while they work.

    For users that need every core themselves: all of a turn is done before its first result is
    given, and the next turn is begun when its last one was used. The threads live for all turns,
    and with them the memory that each has got from the heap.
    """
    with ThreadPoolExecutor(workers, initializer=initializer) as pool:
        for turn in turns:
            results = [pool.submit(function, item) for item in turn]
            try:
                # Once for the whole turn: this thread must not wake up between the others' results.
                wait(results, return_when=FIRST_EXCEPTION)
                yield from [result.result() for result in results]
            finally:
                for result in results:
                    result.cancel()


class OneByOne:
    """Has threads do short pieces of Python's work one after the other, and long ones at once.

    Threads that pass the interpreter's lock back and forth at every call take longer for all of
    such work than one of them alone, and hold up those that are doing something else. What is long
    gives that lock away for most of its time, to decode a photograph or to wait for a disk.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._were_long = deque([False] * LATEST_PIECES, maxlen=LATEST_PIECES)

    @contextmanager
    def piece(self, seconds: float) -> Iterator[None]:
        """One piece of the work, long if it takes more than so many seconds.

        It waits for its turn unless most pieces were long of late: one alone may be long by chance.
        """
        mostly_long = sum(self._were_long) > LATEST_PIECES // 2
        with nullcontext() if mostly_long else self._lock:
            began = time.perf_counter()
            yield
            self._were_long.append(time.perf_counter() - began > seconds)


def one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, each given when the one after it has been made."""
    remaining = iter(items)
    for before in islice(remaining, 1):
        for item in remaining:
            yield before
            before = item
        yield before
