"""Work on several threads, with results in order and a limit on pending work."""

import math
import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from itertools import islice
from typing import TypeVar

from difficulty_service.base.control_groups import cpu_quota

Item = TypeVar("Item")
Result = TypeVar("Result")


def num_workers() -> int:
    """Number of cores that this process may use: by its affinity and its control groups' quota.

    Of a share of a core, one.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, math.ceil(min(cores or 1, cpu_quota() or math.inf)))


_sharing = 1
"""Number of processes that share the cores of this one."""


def share_cores(processes: int) -> None:
    """Says that this process is one of several that work at once."""
    global _sharing
    _sharing = processes


def num_workers_here() -> int:
    """As `num_workers`, of which a process that is one of several has its share.

    It is one of several by `share_cores`, or because `torchrun` or `accelerate` has started it.
    """
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, num_workers() // max(_sharing, int(ranks) if ranks.isdigit() else 1))


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


def one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """Yields the same items, each after the next one has been produced."""
    remaining = iter(items)
    for before in islice(remaining, 1):
        for item in remaining:
            yield before
            before = item
        yield before
