"""Work runs in turns between clients, a few pieces at a time, each client up to its share."""

import threading
from collections.abc import Awaitable, Callable

import anyio
import pytest

from api.http.fair_queue import FairQueue
from api.http.problems import Problem


class Work:
    """Functions that run until they are released; notes the order in which they began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.release = threading.Event()

    def run(self, name: str) -> str:
        self.began.append(name)
        assert self.release.wait(30)
        return name


def order_of(clients: str, at_once: int) -> list[str]:
    """The order in which work of clients begins that is sent in the order of their letters."""
    work = Work()

    async def main() -> None:
        queue = FairQueue("things", at_once, share=100)
        async with anyio.create_task_group() as group:
            for client in clients:
                group.start_soon(queue.run, client, work.run, client)
                await anyio.wait_all_tasks_blocked()
            work.release.set()

    anyio.run(main)
    return work.began


def test_the_first_of_a_client_comes_before_the_many_of_another() -> None:
    assert order_of("aaaaab", at_once=1) == list("abaaaa")


def test_clients_with_as_many_running_take_turns() -> None:
    assert order_of("aaabbb", at_once=1) == list("ababab")


def test_only_so_many_run_at_once() -> None:
    work = Work()

    async def main() -> None:
        queue = FairQueue("things", at_once=2, share=100)
        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(queue.run, "a", work.run, "a")
            while len(work.began) < 2:
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            began = len(work.began)
            work.release.set()
        assert began == 2

    anyio.run(main)
    assert len(work.began) == 5


def test_a_request_beyond_the_share_is_refused_and_those_of_other_clients_are_not() -> None:
    async def main() -> None:
        queue = FairQueue("thumbnails", at_once=1, share=2)
        with queue.request("a"), queue.request("b"):
            with queue.request("a"), pytest.raises(Problem) as caught, queue.request("a"):
                pytest.fail("it was not refused")
            with queue.request("a"):
                pass  # one has ended
        problem = caught.value
        assert (problem.status, problem.type) == (429, "too-many-requests")
        assert problem.detail == "more than 2 thumbnails at once"
        assert problem.headers == {"Retry-After": "1"}

    anyio.run(main)


def test_an_error_reaches_the_caller_and_the_next_has_its_turn() -> None:
    async def main() -> None:
        queue = FairQueue("things", at_once=1, share=100)
        with pytest.raises(ZeroDivisionError):
            await queue.run("a", divmod, 1, 0)
        assert await queue.run("a", divmod, 7, 2) == (3, 1)

    anyio.run(main)


async def cancelled(send: Callable[[], Awaitable[object]]) -> None:
    """Cancels what waits."""
    async with anyio.create_task_group() as group:
        group.start_soon(send)
        await anyio.wait_all_tasks_blocked()
        group.cancel_scope.cancel()


def test_a_cancelled_request_gives_up_its_place() -> None:
    work = Work()

    async def main() -> None:
        queue = FairQueue("things", at_once=1, share=100)
        async with anyio.create_task_group() as group:
            group.start_soon(queue.run, "a", work.run, "first")
            await anyio.wait_all_tasks_blocked()
            await cancelled(lambda: queue.run("b", work.run, "cancelled"))
            work.release.set()
        assert await queue.run("a", work.run, "last") == "last"

    anyio.run(main)
    assert work.began == ["first", "last"]


def test_a_client_with_all_that_it_may_run_leaves_room_for_another() -> None:
    work, began = Work(), []

    async def main() -> None:
        queue = FairQueue("things", at_once=2, share=100, each=1)
        async with anyio.create_task_group() as group:
            for client in "aaab":
                group.start_soon(queue.run, client, work.run, client)
            while len(work.began) < 2:
                await anyio.sleep(0.01)
            await anyio.sleep(0.1)
            began.extend(work.began)
            work.release.set()

    anyio.run(main)
    assert sorted(began) == ["a", "b"]
    assert sorted(work.began) == ["a", "a", "a", "b"]
