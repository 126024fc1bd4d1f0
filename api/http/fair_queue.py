"""Work of one purpose, a few pieces at a time, in turns between clients and up to a share each."""

import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import anyio
from anyio.to_thread import run_sync

from api.http.problems import too_many

P = ParamSpec("P")
T = TypeVar("T")

RETRY_AFTER = 1  # seconds; a piece of work takes about that long


class FairQueue:
    """Runs functions in threads that no other purpose uses; for one event loop.

    The next to run is of the client with the fewest that are running; of several, the one whose
    turn was longest ago. So the first of a client waits for about one piece of work, however many
    another client has sent.

    `purpose` says what the requests are, for the answer to one too many: "thumbnails". A client may
    have `share` of them, running or waiting, and `each` of them running, so that there is room for
    another client at any time if that is less than `at_once`.
    """

    def __init__(self, purpose: str, at_once: int, share: int, each: int | None = None) -> None:
        self._purpose = purpose
        self._at_once = at_once
        self._share = share
        self._each = at_once if each is None else each
        self._threads = anyio.CapacityLimiter(at_once)
        self._requests: Counter[str] = Counter()
        self._running: Counter[str] = Counter()
        self._waiting: dict[str, deque[anyio.Event]] = {}
        self._latest: dict[str, int] = {}
        self._turns = itertools.count()

    @contextmanager
    def request(self, client: str) -> Iterator[None]:
        """Counts a request of a client within the context; refuses one above its share."""
        if self._requests[client] >= self._share:
            raise too_many(
                f"more than {self._share} {self._purpose} at once",
                f"wait for answers, or {RETRY_AFTER} s, as the Retry-After header says",
                headers={"Retry-After": str(RETRY_AFTER)},
            )
        self._requests[client] += 1
        try:
            yield
        finally:
            _subtract(self._requests, client)

    async def run(
        self, client: str, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Result of a function, which runs in a thread when it is the client's turn."""
        await self._turn(client)
        try:
            return await run_sync(lambda: function(*args, **kwargs), limiter=self._threads)
        finally:
            self._end(client)

    async def _turn(self, client: str) -> None:
        """Waits until the client may run a function, which is then counted as running."""
        turn = anyio.Event()
        self._waiting.setdefault(client, deque()).append(turn)
        self._start_next()
        try:
            await turn.wait()
        except BaseException:  # the request was cancelled
            if turn.is_set():
                self._end(client)
            else:
                self._leave(client, turn)
            raise

    def _start_next(self) -> None:
        while self._waiting and self._running.total() < self._at_once:
            # The fewest that are running, then the longest since its latest turn.
            client = min(
                self._waiting, key=lambda each: (self._running[each], self._latest.get(each, -1))
            )
            if self._running[client] >= self._each:
                return
            turns = self._waiting[client]
            self._running[client] += 1
            self._latest[client] = next(self._turns)
            turns.popleft().set()
            if not turns:
                del self._waiting[client]

    def _end(self, client: str) -> None:
        _subtract(self._running, client)
        self._forget_if_idle(client)
        self._start_next()

    def _leave(self, client: str, turn: anyio.Event) -> None:
        turns = self._waiting[client]
        turns.remove(turn)
        if not turns:
            del self._waiting[client]
            self._forget_if_idle(client)

    def _forget_if_idle(self, client: str) -> None:
        if client not in self._waiting and client not in self._running:
            self._latest.pop(client, None)


def _subtract(counter: Counter[str], client: str) -> None:
    """Subtracts one; clients with none are forgotten."""
    counter[client] -= 1
    if not counter[client]:
        del counter[client]
