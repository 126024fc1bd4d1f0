"""uvicorn's protocol on httptools, with limits of what a client may send and how slowly.

httptools has no limit of its own for the head of a request and its trailers, and uvicorn has no
time limit for anything but idle connections.
"""

import asyncio
import json
from collections.abc import Callable
from fcntl import ioctl
from http import HTTPStatus
from struct import unpack
from termios import TIOCOUTQ
from typing import Any

from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from api.http.api_keys import HEALTH, OPEN_PATHS
from api.http.connections import Connections, Pace, Seat
from api.http.problems import CONTENT_TYPE, Problem

MALFORMED = Problem(
    HTTPStatus.BAD_REQUEST,
    "bad-request",
    "the request is not HTTP/1.1, or its head is malformed",
    "send requests with a library for HTTP",
)

TOO_MANY = Problem(
    HTTPStatus.SERVICE_UNAVAILABLE,
    "unavailable",
    "too many connections are open, in all or from this address",
    "close some, use one for several requests, or try again later",
    headers={"Retry-After": "5"},
)

OF_A_HEADER = 32
"""Bytes that a header counts beside its name and value, as in HTTP/2 (RFC 9113, 6.5.2): thousands
of short ones take longer to parse than a few long ones."""


class Refused(Exception):
    """Ends the parsing of a request that `_refusal` answers."""


class GuardedProtocol(HttpToolsProtocol):
    """A connection within the limits of all connections."""

    def __init__(
        self,
        connections: Connections,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        limits = connections.limits
        self._connections = connections
        self._head_began: float | None = None  # None while there is no part of a head
        self._head_bytes = 0  # of the parsed part of a head, and of trailers
        self._unparsed_bytes = 0  # of which the parser has made nothing yet
        self._in_body = False
        self._body_bytes = 0
        self._body_pace = Pace(limits.body_timeout, limits.min_rate)
        self._answer_pace = Pace(limits.answer_timeout, limits.min_rate)
        self._is_answer_stuck = False
        self._is_reserved = False
        self._refusal = MALFORMED

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admits the connection, or closes it."""
        super().connection_made(transport)
        self._head_began = self._connections.now
        seat = self._connections.admit(self, self.client[0] if self.client else "")
        if seat is Seat.NONE:
            transport.abort()
        self._is_reserved = seat is Seat.HEALTH

    def connection_lost(self, exc: Exception | None) -> None:
        """Makes room for another connection."""
        self._connections.release(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses what arrived; refuses a head of which the end does not come."""
        if self._head_began is None and not self._in_body:
            self._head_began = self._connections.now
        self._unparsed_bytes += len(data)
        super().data_received(data)
        if self._unparsed_bytes > self._connections.limits.max_header_bytes:
            self._refuse(self._head_too_large())

    def on_message_begin(self) -> None:
        """Begins to count a head."""
        super().on_message_begin()
        self._head_began = self._connections.now
        self._head_bytes = 0
        self._unparsed_bytes = 0

    def on_url(self, url: bytes) -> None:
        """Counts a part of the address."""
        super().on_url(url)
        self._count_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Counts a header or a trailer."""
        self._count_head(len(name) + len(value) + OF_A_HEADER)
        if not self._in_body:  # no trailer becomes a header of a request that has been checked
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Passes the request on, or refuses it on a reserved connection."""
        if self._is_reserved and self.url.partition(b"?")[0].decode("latin1") not in OPEN_PATHS:
            # Not by the application: what it costs must not be worth an attack.
            self._refusal = TOO_MANY
            raise Refused
        self._connections.work(self)
        self._head_began = None
        self._unparsed_bytes = 0
        self._in_body = True
        self._body_pace.restart(self._connections.now, self._body_bytes)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """Counts a part of the body."""
        self._body_bytes += len(body)
        self._unparsed_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Ends the count of the body."""
        self._in_body = False
        self._unparsed_bytes = 0
        super().on_message_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Starts a health check at once, and any other request when it is its client's turn."""
        start = super()._start_asgi_task

        def start_unless_closed() -> None:
            if not self.transport.is_closing():
                start(cycle, app)

        if cycle.scope["path"] == HEALTH:
            start_unless_closed()
        else:
            self._connections.start(self, start_unless_closed)

    def on_response_complete(self) -> None:
        """Waits for the next request."""
        if not self.pipeline:
            self._connections.wait(self)
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the refusal says more
        """Answers what uvicorn calls an invalid request with a problem."""
        self._refuse(self._refusal)

    def evict(self) -> None:
        """Closes the connection at once, which waits for a request."""
        self.transport.abort()

    def check(self, now: float) -> None:
        """Ends the connection where the client sends or takes too slowly."""
        limits = self._connections.limits
        if self._is_answer_too_slow(now):
            self.transport.abort()
        elif self._must_not_send():
            self._body_pace.restart(now, self._body_bytes)
            self._head_began = None if self._head_began is None else now
        elif self._head_began is not None and now - self._head_began > limits.header_timeout:
            self._refuse(_too_slow("the head of the request", f"{limits.header_timeout:g} s"))
        elif self._in_body and self._body_pace.is_too_slow(now, self._body_bytes):
            self._refuse(_too_slow("the body", f"{limits.min_rate:,g} bytes per second"))

    def _count_head(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > self._connections.limits.max_header_bytes:
            self._refusal = self._head_too_large()
            raise Refused

    def _head_too_large(self) -> Problem:
        return Problem(
            HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE,
            "headers-too-large",
            f"address and headers have more than {self._connections.limits.max_header_bytes:,} "
            "bytes",
            "send what is large in the body",
        )

    def _must_not_send(self) -> bool:
        """Whether the client waits for the application, rather than the other way round."""
        return self.flow.read_paused or (self._in_body and self.cycle.waiting_for_100_continue)

    def _is_answer_too_slow(self, now: float) -> bool:
        """Whether the client takes less of an answer than it must; never while more is written."""
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._is_answer_stuck = False
            return False
        taken = -self.transport.get_write_buffer_size() - _unsent_bytes(self.transport)
        if not self._is_answer_stuck:
            self._is_answer_stuck = True
            self._answer_pace.restart(now, taken)
        return self._answer_pace.is_too_slow(now, taken)

    def _refuse(self, problem: Problem) -> None:
        """Answers with a problem unless an answer has begun, and closes the connection."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        has_begun = cycle is not None and (
            cycle.response_started and (self._in_body or not cycle.response_complete)
        )
        # Nothing arrived of a request on an idle connection, which a client may be about to use.
        is_silent = self._head_began is not None and not (self._head_bytes or self._unparsed_bytes)
        if not (has_begun or is_silent):
            self.transport.write(_raw_answer(problem))
        self.transport.close()


def protocol_with(connections: Connections) -> Callable[..., asyncio.Protocol]:
    """Makes protocols as uvicorn's configuration takes them."""

    def create(**arguments: Any) -> asyncio.Protocol:  # noqa: ANN401 - uvicorn's own
        return GuardedProtocol(connections, **arguments)

    return create


def _too_slow(what: str, limit: str) -> Problem:
    return Problem(
        HTTPStatus.REQUEST_TIMEOUT,
        "too-slow",
        f"{what} arrived more slowly than allowed: {limit}",
        "send the request again over a faster connection",
    )


def _raw_answer(problem: Problem) -> bytes:
    """The whole answer, for a request that never reached the application."""
    body = json.dumps(problem.body())
    headers = {
        **problem.headers,
        "Content-Type": CONTENT_TYPE,
        "Content-Length": str(len(body)),
        "Connection": "close",
    }
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    return STATUS_LINE[problem.status] + f"{lines}\r\n{body}".encode()


def _unsent_bytes(transport: asyncio.Transport) -> int:
    """Bytes that the kernel keeps for the client; 0 where it does not say."""
    try:
        number: int = unpack("i", ioctl(transport.get_extra_info("socket"), TIOCOUTQ, bytes(4)))[0]
    except (OSError, TypeError, ValueError):
        return 0
    return number
