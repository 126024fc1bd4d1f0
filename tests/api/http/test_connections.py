"""What makes room for a new connection, and for whom there is none."""

import asyncio
import resource
import subprocess
import sys
from dataclasses import dataclass

import pytest

from api.http.connections import (
    FEWEST,
    RESERVED,
    ConnectionLimits,
    Connections,
    Pace,
    Seat,
    Turns,
    connections_within,
    network_of,
)

pytestmark = pytest.mark.anyio


@dataclass(eq=False)
class Client:
    """A connection that only remembers whether it was closed."""

    is_open: bool = True

    def evict(self) -> None:
        self.is_open = False

    def check(self, now: float) -> None:
        """Is never too slow."""


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def admitted(connections: Connections, number: int, address: str = "192.0.2.1") -> list[Client]:
    clients = [Client() for _ in range(number)]
    assert {connections.admit(client, address) for client in clients} == {Seat.ANY}
    return clients


async def test_a_new_connection_takes_the_place_of_the_one_that_has_waited_longest() -> None:
    connections = Connections(ConnectionLimits(max_connections=3))
    first, second, third = admitted(connections, 3)
    connections.work(first)
    connections.wait(first)

    admitted(connections, 1)

    assert [first.is_open, second.is_open, third.is_open] == [True, False, True]


async def test_where_all_are_busy_only_health_checks_are_answered_until_one_ends() -> None:
    connections = Connections(ConnectionLimits(max_connections=2))
    busy = admitted(connections, 2)
    for client in busy:
        connections.work(client)

    assert connections.admit(Client(), "192.0.2.9") is Seat.HEALTH
    connections.release(busy[0])
    connections.release(busy[0])

    assert connections.admit(Client(), "192.0.2.9") is Seat.ANY
    assert connections.admit(Client(), "192.0.2.9") is Seat.ANY  # the other waited
    assert all(client.is_open for client in busy)


async def test_the_reserve_is_freed_as_the_rest_is_and_has_an_end() -> None:
    connections = Connections(ConnectionLimits(max_connections=1))
    connections.work(admitted(connections, 1)[0])
    reserve = [Client() for _ in range(RESERVED)]
    assert {connections.admit(client, "192.0.2.2") for client in reserve} == {Seat.HEALTH}

    assert connections.admit(Client(), "192.0.2.3") is Seat.HEALTH
    assert [client.is_open for client in reserve] == [False] + [True] * (RESERVED - 1)

    connections = Connections(ConnectionLimits(max_connections=1))
    connections.work(admitted(connections, 1)[0])
    for client in reserve:
        connections.admit(client, "192.0.2.2")
        connections.work(client)
    assert connections.admit(Client(), "192.0.2.3") is Seat.NONE


async def test_an_address_at_its_limit_makes_room_among_its_own_connections() -> None:
    connections = Connections(ConnectionLimits(max_connections=10, max_per_address=2))
    other = admitted(connections, 1, "192.0.2.7")
    mine = admitted(connections, 2)

    admitted(connections, 1)

    assert [client.is_open for client in other + mine] == [True, False, True]


async def test_a_proxy_may_have_as_many_as_there_are() -> None:
    limits = ConnectionLimits(
        max_connections=10, max_per_address=2, is_proxy=lambda address: address == "192.0.2.1"
    )
    connections = Connections(limits)

    assert all(client.is_open for client in admitted(connections, 10))


@pytest.mark.parametrize(
    ("one", "other", "is_same"),
    [
        ("192.0.2.1", "192.0.2.2", False),
        ("2001:db8::1", "2001:db8::ffff:1", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:192.0.2.1", "192.0.2.1", True),
        ("::ffff:192.0.2.1", "::ffff:192.0.2.2", False),
        ("", "192.0.2.1", False),
    ],
)
def test_one_customers_ipv6_addresses_count_as_one(one: str, other: str, is_same: bool) -> None:  # noqa: FBT001
    assert (network_of(one) == network_of(other)) is is_same


def test_a_client_at_the_minimum_rate_may_go_on_for_ever() -> None:
    pace = Pace(window=10, rate=100)

    assert not any(pace.is_too_slow(second, 100 * second) for second in range(10_000))


def test_a_client_below_it_is_found_at_the_end_of_the_window() -> None:
    pace = Pace(window=10, rate=100)

    found = [second for second in range(20) if pace.is_too_slow(second, 99 * second)]

    assert found[0] == 10


def test_bytes_of_an_earlier_window_do_not_count_for_a_later_one() -> None:
    pace = Pace(window=10, rate=100)

    assert not pace.is_too_slow(10, 1_000_000)
    assert pace.is_too_slow(20, 1_000_999)


def test_a_pause_that_is_not_the_clients_begins_a_new_window() -> None:
    pace = Pace(window=10, rate=100)

    pace.restart(9, 0)

    assert not pace.is_too_slow(18, 0)
    assert pace.is_too_slow(19, 0)


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


def test_few_descriptors_allow_fewer_connections_than_many() -> None:
    assert FEWEST == connections_within(100, 16) < connections_within(1024, 16) < 512
    assert connections_within(4096, 16) > 512


def test_the_soft_limit_is_raised_to_the_hard_one() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowered = (
        "import resource\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, (64, min(300, {hard})))\n"
        "from api.http.connections import raise_descriptor_limit\n"
        "print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))"
    )

    shown = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", lowered], capture_output=True, text=True, check=True
    )

    assert shown.stdout.split() == ["300", "300", "300"]
