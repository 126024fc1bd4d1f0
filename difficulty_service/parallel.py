"""Work on several threads, with results in order and a bound on what is under way."""

import os
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    given, and the next turn is begun when its last one was used.
    """
    for turn in turns:
        yield from list(map_in_order(function, turn, workers, initializer))


def one_ahead(items: Iterable[Item]) -> Iterator[Item]:
    """The same items, each given when the one after it has been made."""
    remaining = iter(items)
    for before in islice(remaining, 1):
        for item in remaining:
            yield before
            before = item
        yield before
