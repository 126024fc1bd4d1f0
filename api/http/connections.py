"""How many connections there may be, what makes room for a new one, and whose request is next."""

import asyncio
import ipaddress
import resource
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import Protocol


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


@dataclass
class Pace:
    """Measures the rate of one direction of a connection in windows of time."""

    window: float  # seconds over which the rate is averaged
    rate: float  # minimum number of bytes per second
    began: float = 0.0  # start of the present window, in seconds
    count: int = 0  # bytes transferred before it

    def restart(self, now: float, count: int) -> None:
        """Begins a window, as after a pause that is not the client's."""
        self.began = now
        self.count = count

    def is_too_slow(self, now: float, count: int) -> bool:
        """Whether a window ended with fewer bytes than the rate asks for.

        The count may begin anywhere, also below zero.
        """
        if now - self.began < self.window:
            return False
        is_slow = count - self.count < self.rate * (now - self.began)
        self.restart(now, count)
        return is_slow


SWEEP_SECONDS = 0.5
RESERVED = 16  # connections above the limit, on which only health checks are answered

IPV6_NETWORK = 64  # bits that one customer of a provider gets


class Seat(Enum):
    """What a connection was admitted to."""

    ANY = "all requests"
    HEALTH = "health checks only"
    NONE = "nothing"


class Connection(Protocol):
    """What the limits need of a connection."""

    def evict(self) -> None:
        """Closes it, which waits for a request."""

    def check(self, now: float) -> None:
        """Ends it where the client is too slow."""


@dataclass(frozen=True)
class ConnectionLimits:
    """Limits of connections and of each one's client, as `Settings` describes them."""

    max_connections: int = 512
    max_per_address: int = 128
    max_header_bytes: int = 64 << 10
    header_timeout: float = 10.0
    body_timeout: float = 30.0
    answer_timeout: float = 120.0
    min_rate: float = 1024.0
    is_proxy: Callable[[str], bool] = lambda _: False  # with many clients behind it


class Connections:
    """The open connections of a server; only to be used on its event loop.

    A connection above a limit takes the place of the one that has waited longest for a request, be
    it an idle one or one whose request never becomes complete. Where all are busy, it gets one of a
    few reserved places, which answer health checks and are freed in the same way.
    """

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        self.now = 0.0
        """Seconds that the event loop was available; a pause of the process adds next to none."""
        self._admitted: dict[Connection, str] = {}
        self._by_address: Counter[str] = Counter()
        self._reserved: dict[Connection, None] = {}
        self._waiting: dict[Connection, None] = {}  # for a request, the longest first
        self._turns = Turns()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._swept = 0.0

    def admit(self, connection: Connection, address: str) -> Seat:
        """Counts a new connection, which waits for its first request."""
        client = "" if self.limits.is_proxy(address) else network_of(address)
        is_full = len(self._admitted) >= self.limits.max_connections
        if not (is_full or self._is_crowded(client)) or self._make_room(client):
            self._admitted[connection] = client
            self._by_address[client] += 1
            seat = Seat.ANY
        elif len(self._reserved) < RESERVED or self._evict(self._reserved.__contains__):
            self._reserved[connection] = None
            seat = Seat.HEALTH
        else:
            return Seat.NONE
        self._waiting[connection] = None
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._swept = self._loop.time()
            self._loop.call_later(SWEEP_SECONDS, self._sweep, self._loop)
        return seat

    def wait(self, connection: Connection) -> None:
        """The connection waits for its next request."""
        if connection in self._admitted or connection in self._reserved:
            self._waiting[connection] = None

    def work(self, connection: Connection) -> None:
        """The head of a request has arrived."""
        self._waiting.pop(connection, None)

    def start(self, connection: Connection, start: Callable[[], None]) -> None:
        """Starts a request of a connection when it is its client's turn."""
        self._turns.add(self._admitted.get(connection, ""), start)

    def release(self, connection: Connection) -> None:
        """The connection is closed, or about to be; may be called again."""
        self._waiting.pop(connection, None)
        self._reserved.pop(connection, None)
        client = self._admitted.pop(connection, None)
        if client is not None:
            self._by_address[client] -= 1
            if not self._by_address[client]:
                del self._by_address[client]

    def _is_crowded(self, client: str) -> bool:
        """Whether the client has as many connections as it may have; "" may have any number."""
        return client != "" and self._by_address[client] >= self.limits.max_per_address

    def _make_room(self, client: str) -> bool:
        if self._is_crowded(client):
            return self._evict(lambda connection: self._admitted.get(connection) == client)
        return self._evict(self._admitted.__contains__)

    def _evict(self, may_go: Callable[[Connection], bool]) -> bool:
        """Closes the one of these that has waited longest; whether there was one."""
        for connection in self._waiting:
            if may_go(connection):
                self.release(connection)
                connection.evict()
                return True
        return False

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Checks every connection, as long as there are any."""
        time = loop.time()
        # After a pause, what has arrived meanwhile is read only after this.
        self.now += min(time - self._swept, 2 * SWEEP_SECONDS)
        self._swept = time
        for connection in [*self._admitted, *self._reserved]:
            connection.check(self.now)
        if self._admitted or self._reserved:
            loop.call_later(SWEEP_SECONDS, self._sweep, loop)
        else:
            self._loop = None


@lru_cache(maxsize=1024)
def network_of(address: str) -> str:
    """The address, or for IPv6 the network of one customer, who has all of its addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, IPV6_NETWORK), strict=False))


OF_THE_REST = 192
"""Descriptors for what is open beside connections: database, files, pipes of processes."""

OF_A_CONNECTION = 2  # its own, and a file that its request reads or writes
FEWEST = 8
MOST = 1 << 20  # what a limit without an end is taken for


def raise_descriptor_limit() -> int:
    """Raises the soft limit to the hard one; gives the limit that then holds."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST if hard == resource.RLIM_INFINITY else hard
    if soft != resource.RLIM_INFINITY and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):  # the kernel has a limit of its own
            return soft
    return wanted


def connections_within(descriptors: int, reserved: int) -> int:
    """Number of connections that a number of descriptors allows, beside some reserved ones."""
    return max(FEWEST, (descriptors - OF_THE_REST - reserved) // OF_A_CONNECTION)
