"""Requests start one by one, and no client waits for all requests of another."""

import asyncio

import pytest

from api.http.turns import Turns

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def iteration() -> None:
    """Lets the event loop run once."""
    await asyncio.sleep(0)


async def test_one_request_starts_in_each_iteration_of_the_loop() -> None:
    turns = Turns()
    started: list[int] = []
    for number in range(3):
        turns.add("a", lambda number=number: started.append(number))  # type: ignore[misc]

    assert started == []
    seen = []
    for _ in range(3):
        await iteration()
        seen.append(list(started))

    assert seen == [[0], [0, 1], [0, 1, 2]]


async def test_clients_take_turns_however_many_requests_one_of_them_has() -> None:
    turns = Turns()
    started: list[str] = []
    for client in ["a", "a", "a", "a", "b", "b"]:
        turns.add(client, lambda client=client: started.append(client))  # type: ignore[misc]

    for _ in range(6):
        await iteration()

    assert started == ["a", "b", "a", "b", "a", "a"]


async def test_a_request_that_comes_when_all_have_started_starts_too() -> None:
    turns = Turns()
    started: list[str] = []
    turns.add("a", lambda: turns.add("a", lambda: started.append("later")))

    for _ in range(2):
        await iteration()

    assert started == ["later"]
