"""Starts the requests of many connections one by one, in turns between clients."""

import asyncio
from collections import deque
from collections.abc import Callable


class Turns:
    """Starts one request in each iteration of the event loop; only to be used on that loop.

    However many requests arrive at once, the loop goes back to its connections after each, where a
    health check waits for one start rather than for all of them. A client with many requests that
    wait for their start delays the first one of another client by one start.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[Callable[[], None]]] = {}  # by client, the next one first

    def add(self, client: str, start: Callable[[], None]) -> None:
        """Starts a request when it is the client's turn, at the earliest in the next iteration."""
        if not self._waiting:
            asyncio.get_running_loop().call_soon(self._start_next)
        self._waiting.setdefault(client, deque()).append(start)

    def _start_next(self) -> None:
        client = next(iter(self._waiting))
        starts = self._waiting.pop(client)
        start = starts.popleft()
        if starts:
            self._waiting[client] = starts  # behind all others
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._start_next)
        start()
