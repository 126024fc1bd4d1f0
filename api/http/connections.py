"""What one client may take of the server: connections, requests at once, and time for bodies."""

import asyncio
import ipaddress
import resource
import time
from collections import Counter
from dataclasses import dataclass, field
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.api_keys import HEALTH, OPEN_PATHS
from api.http.problem_responses import answer
from api.http.problems import Problem, headers_too_large, unavailable
from api.settings import Settings

RESERVED = 16  # connections above a limit, so that health checks are answered
IDLE_SECONDS = 30.0  # after an answer, until the head of the next request has arrived
PAUSE_SECONDS = 0.5  # what arrived while the process stood still is read within this time
IPV6_NETWORK = 64  # bits that one customer of a provider gets
OF_A_HEADER = 32
"""Bytes that a header counts beside its name and value, as in HTTP/2 (RFC 9113, 6.5.2): thousands
of short ones take longer to parse than a few long ones."""


Address = tuple[str, int]


@dataclass(eq=False)
class Connection:
    """An open connection."""

    address: Address  # of its client
    transport: asyncio.Transport
    client: str  # address or network that it counts for; "" for a proxy
    requests: int = 0  # that are being answered
    closed: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None  # which closes it, while it waits for a request


class Front:
    """Middleware before all others, which `LittleByLittle` tells of connections; for one loop.

    A connection above a limit takes the place of the one that has waited longest for a request, be
    it an idle one or one whose head never becomes complete. Requests above a limit are refused,
    except health checks. So some connections always wait, and there is room for a new one.
    """

    def __init__(self, app: ASGIApp, settings: Settings, max_connections: int) -> None:
        self.settings = settings
        self._app = app
        self._max_connections = max_connections
        self._proxies = [ipaddress.ip_network(each) for each in settings.trusted_proxies]
        self._open: dict[Address, Connection] = {}
        self._clients: Counter[str] = Counter()  # open connections of each
        self._waiting: dict[Connection, None] = {}  # for a request, the longest first
        self._start = asyncio.Lock()

    def opened(self, address: Address | None, transport: asyncio.Transport) -> None:
        """Counts a new connection, which waits for its first request; closes one too many."""
        if address is None:  # the client has closed it already
            transport.abort()
            return
        host = ipaddress.ip_address(address[0].partition("%")[0])
        client = "" if any(host in each for each in self._proxies) else network_of(host)
        most = self.settings.max_connections_per_address
        is_crowded = client != "" and self._clients[client] >= most + RESERVED
        if is_crowded or len(self._open) >= self._max_connections + RESERVED:
            longest = next(
                (each for each in self._waiting if not is_crowded or each.client == client), None
            )
            if longest is None:
                transport.abort()
                return
            self._forget(longest)
            longest.transport.abort()
        self._clients[client] += 1
        connection = self._open[address] = Connection(address, transport, client)
        self._wait(connection, self.settings.header_timeout)

    def lost(self, address: Address | None, transport: asyncio.Transport) -> None:
        """Forgets a connection that is closed."""
        connection = self._open.get(address) if address else None
        if connection is not None and connection.transport is transport:
            self._forget(connection)

    def _forget(self, connection: Connection) -> None:
        del self._open[connection.address]
        self._clients[connection.client] -= 1
        if not self._clients[connection.client]:
            del self._clients[connection.client]
        self._waiting.pop(connection, None)
        connection.closed.set()
        if connection.timer is not None:
            connection.timer.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on, or refuses it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        connection = self._open.get(tuple(scope["client"] or ()))
        if connection is None:  # it was closed before its request began
            return
        self._waiting.pop(connection, None)
        if connection.timer is not None:
            connection.timer.cancel()
        connection.requests += 1
        try:
            problem = self._refusal(connection, scope)
            if problem is not None:
                await answer(problem, scope)(scope, receive, send)
                return
            if scope["path"] != HEALTH:
                async with self._start:  # one in each iteration of the loop, which health waits for
                    await asyncio.sleep(0)
            receive_in_time = self._receiving(connection, scope, receive)
            await self._app(scope, receive_in_time, self._sending(connection, send))
        except asyncio.CancelledError:
            # The server stops, and the client has taken its answer too slowly. That the connection
            # is cut tells it so; uvicorn would log the exception with a traceback.
            connection.transport.abort()
            await connection.closed.wait()
        finally:
            connection.requests -= 1
            if not (connection.requests or connection.closed.is_set()):
                self._wait(connection, IDLE_SECONDS)

    def _refusal(self, connection: Connection, scope: Scope) -> Problem | None:
        settings, client = self.settings, connection.client
        head = len(scope["raw_path"]) + len(scope["query_string"])
        head += sum(len(name) + len(value) + OF_A_HEADER for name, value in scope["headers"])
        if head > settings.max_header_bytes:
            return headers_too_large(settings.max_header_bytes)
        if scope["path"] in OPEN_PATHS:
            return None
        busy = [each.client for each in self._open.values() if each.requests]
        if len(busy) > self._max_connections or (
            client and busy.count(client) > settings.max_connections_per_address
        ):
            return unavailable(
                "too many requests are being answered, in all or from this address",
                "wait for answers, or try again later",
                headers={"Retry-After": "5", "Connection": "close"},
            )
        return None

    def _receiving(self, connection: Connection, scope: Scope, receive: Receive) -> Receive:
        """Receives a body, which must arrive at a rate, or else raises 408.

        Its time is a budget: waiting for the client spends it, and every byte earns some back. Once
        the body is complete, uvicorn, which would read on, is not asked for the end of the
        connection.
        """
        budget, rate = self.settings.body_timeout, self.settings.min_rate
        names = {name for name, _ in scope["headers"]}
        message: Message = {"type": "http.request", "body": b"", "more_body": False}
        has_more = not names.isdisjoint({b"content-length", b"transfer-encoding"})
        is_first = True

        async def receive_in_time() -> Message:
            nonlocal budget, message, has_more, is_first
            if not (has_more or is_first):
                await connection.closed.wait()
                return {"type": "http.disconnect"}
            is_first = False
            if has_more:
                began = time.monotonic()
                try:
                    async with asyncio.timeout(budget if rate else None):
                        message = await receive()
                except TimeoutError:
                    raise HTTPException(
                        HTTPStatus.REQUEST_TIMEOUT,
                        f"the body arrived more slowly than allowed: {rate:,g} bytes per second",
                        {"Connection": "close"},
                    ) from None
                earned = len(message.get("body", b"")) / (rate or 1)
                budget = min(
                    self.settings.body_timeout, budget - (time.monotonic() - began) + earned
                )
                has_more = message.get("more_body", False)
            return message

        return receive_in_time

    def _sending(self, connection: Connection, send: Send) -> Send:
        """Sends an answer, which must be taken at a rate, or else closes the connection.

        uvicorn waits until most of what was sent before is taken, which has the time of its bytes.
        """
        budget, rate = self.settings.answer_timeout, self.settings.min_rate

        async def send_in_time(message: Message) -> None:
            nonlocal budget
            if connection.closed.is_set():  # uvicorn drops the message without a pause
                await asyncio.sleep(0)
            began = time.monotonic()
            try:
                async with asyncio.timeout(budget if rate else None):
                    await send(message)
            except TimeoutError:
                connection.transport.abort()
                await connection.closed.wait()
            left = min(self.settings.answer_timeout, budget - (time.monotonic() - began))
            budget = left + len(message.get("body", b"")) / (rate or 1)

        return send_in_time

    def _wait(self, connection: Connection, seconds: float) -> None:
        """The connection waits for a request, and is closed if none comes."""
        self._waiting[connection] = None
        loop = asyncio.get_running_loop()
        connection.timer = loop.call_later(seconds, self._expire, connection, seconds)

    def _expire(self, connection: Connection, seconds: float) -> None:
        if connection.transport.get_write_buffer_size():  # the client still takes an answer
            self._wait(connection, seconds)
        else:
            loop = asyncio.get_running_loop()
            connection.timer = loop.call_later(PAUSE_SECONDS, connection.transport.abort)


def network_of(host: ipaddress.IPv4Address | ipaddress.IPv6Address) -> str:
    """The address, or for IPv6 the network of one customer, who has all of its addresses."""
    if isinstance(host, ipaddress.IPv4Address):
        return str(host)
    if host.ipv4_mapped is not None:
        return str(host.ipv4_mapped)
    return str(ipaddress.ip_network((host, IPV6_NETWORK), strict=False))


OF_THE_REST = 192  # descriptors that are no connections: database, files, pipes of processes
OF_A_CONNECTION = 2  # descriptors: its own, and a file that its request reads or writes
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


def connections_within(descriptors: int) -> int:
    """Number of connections that a number of descriptors allows, beside the reserved ones."""
    return max(FEWEST, (descriptors - OF_THE_REST - RESERVED) // OF_A_CONNECTION)
