"""Searches among the samples of a job: in turns between clients, and up to a limit of time.

One ends early where its client closes the connection, and where the server stops. What searches
calls `go_on` now and then, in which it ends.
"""

import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import ParamSpec, TypeVar

import anyio
from anyio import CancelScope
from anyio.from_thread import check_cancelled
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.http.fair_queue import FairQueue
from api.http.problems import stopping
from api.results.score_pages import BadQuery

AT_ONCE = 2
"""Searches of all clients that run at the same time, of which a client has one."""

SHARE = 16  # searches of a client, running or waiting
POLL_SECONDS = 0.2  # after which a search notices that the server stops

P = ParamSpec("P")
T = TypeVar("T")


@dataclass
class _Search:
    """A search, and what its thread asks now and then."""

    seconds: float  # time limit, which begins with its turn
    scope: CancelScope  # is cancelled where nobody waits for the result
    reason: Exception | None = None  # why it was cancelled
    deadline: float = float("inf")  # on the clock of `time.monotonic`

    def end(self, reason: Exception) -> None:
        """Ends the search, whether it waits or runs. For the event loop only."""
        self.reason = reason
        self.scope.cancel()

    def check(self) -> None:
        """Raises an exception if the search is to end. For its thread."""
        check_cancelled()
        if time.monotonic() > self.deadline:
            raise BadQuery(
                "query",
                f"finding what fulfils these conditions took more than {self.seconds:g} s",
                "look for fewer or shorter texts, or in fewer columns; the operator of the service "
                "may raise DIFFICULTY_FILTER_SECONDS",
            )


_CURRENT: ContextVar[_Search | None] = ContextVar("search", default=None)


def go_on() -> None:
    """Returns if the search of this thread, if any, is to go on; raises an exception otherwise.

    Raises:
        BadQuery: It has taken too long.
    """
    search = _CURRENT.get()
    if search is not None:
        search.check()


class Searches:
    """Runs searches in threads of their own; for one event loop.

    Args:
        seconds: Time limit of each.
        is_stopping: Whether the server stops.
    """

    def __init__(self, seconds: float, is_stopping: Callable[[], bool]) -> None:
        self._seconds = seconds
        self._is_stopping = is_stopping
        self._queue = FairQueue("lists with such conditions", AT_ONCE, SHARE, each=1)

    async def run(
        self,
        request: Request,
        client: str,
        function: Callable[P, T],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> T:
        """Result of a function that searches for a request, at the turn of its client.

        Raises:
            ClientDisconnect: The client has closed the connection.
            Problem: The client waits for too many already, or the server stops.
        """

        def begin(search: _Search) -> T:
            search.deadline = time.monotonic() + search.seconds
            _CURRENT.set(search)
            return function(*args, **kwargs)

        failure: Exception = AssertionError("a search ended without a result")
        async with anyio.create_task_group() as group:
            search = _Search(self._seconds, group.cancel_scope)
            group.start_soon(_end_with_client, request, search)
            group.start_soon(self._end_with_server, search)
            try:
                with self._queue.request(client):
                    return await self._queue.run(client, begin, search)
            except Exception as error:  # noqa: BLE001 - raised below, and not in a group
                failure = error
            finally:
                group.cancel_scope.cancel()
        raise search.reason or failure

    async def _end_with_server(self, search: _Search) -> None:
        while not self._is_stopping():
            await anyio.sleep(POLL_SECONDS)
        search.end(stopping())


async def _end_with_client(request: Request, search: _Search) -> None:
    try:
        while (await request.receive())["type"] != "http.disconnect":
            pass
    except HTTPException as error:  # of a body that is too large or too slow
        search.end(error)
    else:
        search.end(ClientDisconnect())
