"""What makes room for a new connection, and for whom there is none."""

from dataclasses import dataclass

import pytest

from api.http.connections import RESERVED, ConnectionLimits, Connections, Seat, network_of

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
