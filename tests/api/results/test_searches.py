"""A search has its turn and a limit of time, and ends with its client and with the server."""

import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

import anyio
import pytest
from fastapi import Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect

from api.http.problems import Problem
from api.results.score_pages import BadQuery
from api.results.searches import SHARE, Searches, go_on

LONG = 60.0  # seconds that no test takes


class Client:
    """A client that has sent a request, until it closes the connection."""

    def __init__(self, name: str = "a") -> None:
        self.name = name
        self.closed = anyio.Event()
        self._sent = False

    async def receive(self) -> dict[str, object]:
        if not self._sent:
            self._sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.closed.wait()
        return {"type": "http.disconnect"}

    async def search(
        self, searches: Searches, function: Callable[..., Any], *args: object
    ) -> object:
        request = Request({"type": "http"}, self.receive)  # type: ignore[arg-type]
        return await searches.run(request, self.name, function, *args)


def work(began: threading.Event, ended: threading.Event) -> None:
    """Looks through samples for ever, unless it is told to end."""
    began.set()
    try:
        while True:
            go_on()
            time.sleep(0.005)
    finally:
        ended.set()


def in_loop(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    async def within_time() -> None:
        with anyio.fail_after(LONG):
            await main()

    anyio.run(within_time)


async def until(event: threading.Event) -> None:
    while not event.is_set():
        await anyio.sleep(0.005)


def test_the_result_and_the_errors_of_a_search_reach_its_caller() -> None:
    async def main() -> None:
        searches = Searches(LONG, lambda: False)
        assert await Client().search(searches, divmod, 7, 2) == (3, 1)
        with pytest.raises(ZeroDivisionError):
            await Client().search(searches, divmod, 1, 0)
        with pytest.raises(BadQuery, match="no column"):
            await Client().search(searches, refuse)

    in_loop(main)


def refuse() -> None:
    raise BadQuery("has.x", "there is no column")


def test_a_search_ends_when_its_client_closes_the_connection() -> None:
    async def main() -> None:
        searches, client = Searches(LONG, lambda: False), Client()
        began, ended = threading.Event(), threading.Event()

        async def close() -> None:
            await until(began)
            client.closed.set()

        async with anyio.create_task_group() as group:
            group.start_soon(close)
            with pytest.raises(ClientDisconnect):
                await client.search(searches, work, began, ended)
        assert ended.is_set()
        assert await Client().search(searches, divmod, 7, 2) == (3, 1)  # its turn has ended, too

    in_loop(main)


def test_a_search_whose_client_leaves_while_it_waits_never_begins() -> None:
    async def main() -> None:
        searches, first, second = Searches(LONG, lambda: False), Client(), Client()
        began, ended, never = (threading.Event() for _ in range(3))

        async def run_first() -> None:
            with pytest.raises(ClientDisconnect):
                await first.search(searches, work, began, ended)

        async with anyio.create_task_group() as group:
            group.start_soon(run_first)
            await until(began)
            second.closed.set()
            with pytest.raises(ClientDisconnect):
                await second.search(searches, work, never, never)
            assert not ended.is_set()
            first.closed.set()
        assert not never.is_set()

    in_loop(main)


def test_a_search_that_takes_too_long_is_refused_with_what_to_do() -> None:
    async def main() -> None:
        searches = Searches(0.05, lambda: False)
        with pytest.raises(BadQuery, match=r"took more than 0\.05 s") as caught:
            await Client().search(searches, work, threading.Event(), threading.Event())
        assert caught.value.remedy.startswith("look for fewer or shorter texts")

    in_loop(main)


def test_the_limit_of_time_begins_with_the_turn() -> None:
    async def main() -> None:
        searches, first = Searches(0.5, lambda: False), Client()
        began = threading.Event()
        found: list[object] = []

        async def wait_long() -> None:
            with pytest.raises(BadQuery):
                await first.search(searches, work, began, threading.Event())

        async def after_it() -> None:
            found.append(await Client().search(searches, look_once))

        async with anyio.create_task_group() as group:
            group.start_soon(wait_long)
            await until(began)
            group.start_soon(after_it)
        assert found == ["found"]

    in_loop(main)


def look_once() -> str:
    go_on()
    return "found"


def test_searches_that_run_and_that_wait_are_told_when_the_server_stops() -> None:
    async def main() -> None:
        is_stopping = threading.Event()
        searches = Searches(LONG, is_stopping.is_set)
        began = threading.Event()
        problems: list[Problem] = []

        async def run() -> None:
            with pytest.raises(Problem) as caught:
                await Client().search(searches, work, began, threading.Event())
            problems.append(caught.value)

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(run)
            await until(began)
            is_stopping.set()
        assert [problem.status for problem in problems] == [503] * 5
        assert problems[0].detail == "the service is being stopped"

    in_loop(main)


def test_one_client_leaves_a_thread_for_another_and_may_wait_for_so_many() -> None:
    async def main() -> None:
        searches, clients = Searches(LONG, lambda: False), [Client("a") for _ in range(SHARE)]
        began = threading.Event()

        async def run(client: Client) -> None:
            with pytest.raises(ClientDisconnect):
                await client.search(searches, work, began, threading.Event())

        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(run, client)
            await until(began)
            assert await Client("b").search(searches, divmod, 7, 2) == (3, 1)
            with pytest.raises(Problem) as caught:
                await Client("a").search(searches, divmod, 7, 2)
            assert (caught.value.status, caught.value.headers) == (429, {"Retry-After": "1"})
            for client in clients:
                client.closed.set()

    in_loop(main)


def test_a_body_that_is_refused_ends_the_search_with_the_reason() -> None:
    async def main() -> None:
        async def receive() -> dict[str, object]:
            raise HTTPException(408, "the body arrived more slowly than allowed")

        request = Request({"type": "http"}, receive)  # type: ignore[arg-type]
        searches = Searches(LONG, lambda: False)
        with pytest.raises(HTTPException) as caught:
            await searches.run(request, "a", work, threading.Event(), threading.Event())
        assert caught.value.status_code == 408

    in_loop(main)


def test_what_is_no_search_goes_on() -> None:
    go_on()
