"""uvicorn's protocol on h11, which parses a little at a time and tells of its connections.

h11 has one request of a connection under way at a time and a limit of the head. What it is given
beyond that it keeps, though, and parses at once when it comes to it. So the bytes of later requests
wait here, and reading pauses.
"""

import json
import re
import sys
from asyncio import Transport
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from api.http.connections import Front
from api.http.problems import CONTENT_TYPE, bad_request, headers_too_large

PARSED_BYTES = 4096
"""Bytes given to the parser at once, by which a head can exceed its limit: parsing thousands of
headers holds up the event loop."""

AHEAD_BYTES = 1 << 20
"""Bytes of later requests above which a connection is closed. Reading pauses long before; but every
request with a body lets uvicorn read once more."""


_END_OF_HEAD = re.compile(rb"\n\r?\n")
_LENGTH = re.compile(
    rb"\n(?:Content-Length|(Transfer-Encoding)):([^\n]*(?:\n[ \t][^\n]*)*)", re.IGNORECASE
)


class OneLength(h11.Connection):
    """Refuses a request that states the length of its body twice, even if both are the same.

    h11 takes one of them. A proxy in front that takes the other one would see another request in
    what is the body here, or the other way round (RFC 9112, 6.3 and 11.2).
    """

    def next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        """The next event; raises RemoteProtocolError for a head with two lengths."""
        if self.their_state is h11.IDLE:
            data, _ = self.trailing_data
            end = _END_OF_HEAD.search(data)
            if end is not None and _has_two_lengths(data[: end.start() + 1]):
                raise h11.RemoteProtocolError("it states the length of its body twice")
        return super().next_event()


def _has_two_lengths(head: bytes) -> bool:
    lengths = list(_LENGTH.finditer(head))
    return len(lengths) > 1 or any(not each[1] and b"," in each[2] for each in lengths)


class LittleByLittle(H11Protocol):
    """A connection whose requests are parsed one at a time."""

    def __init__(self, front: Front, **arguments: Any) -> None:  # noqa: ANN401 - uvicorn's own
        super().__init__(**arguments)
        self.conn = OneLength(h11.SERVER, front.settings.max_header_bytes)
        self._front = front
        self._unparsed = bytearray()

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Has the connection counted."""
        super().connection_made(transport)
        self._front.opened(self.client, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Makes room for another connection."""
        self._front.lost(self.client, self.transport)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parses what belongs to the present request."""
        self._unparsed += data
        self._parse()

    def on_response_complete(self) -> None:
        """Parses the next request, if it has arrived."""
        super().on_response_complete()
        self._parse()

    def _parse(self) -> None:
        # In any other state the request is complete and its answer is not, or there is no next one.
        while (
            self._unparsed
            and self.conn.their_state in {h11.IDLE, h11.SEND_BODY}
            and not self.transport.is_closing()
        ):
            piece = bytes(self._unparsed[:PARSED_BYTES])
            del self._unparsed[:PARSED_BYTES]
            super().data_received(piece)
        if len(self._unparsed) > AHEAD_BYTES:
            self.transport.abort()
        elif self._unparsed:
            self.flow.pause_reading()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - the problem says more
        """Answers what h11 refuses with a problem, unless an answer has begun, and closes."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            error = sys.exception()
            status = getattr(error, "error_status_hint", HTTPStatus.BAD_REQUEST)
            problem = (
                headers_too_large(self._front.settings.max_header_bytes)
                if status == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
                else bad_request(
                    f"the request is not HTTP/1.1: {error}", "send requests with a library for HTTP"
                )
            )
            body = json.dumps(problem.body()).encode()
            headers = {**problem.headers, "Content-Type": CONTENT_TYPE, "Connection": "close"}
            headers["Content-Length"] = str(len(body))
            start = h11.Response(status_code=problem.status, headers=list(headers.items()))
            for event in (start, h11.Data(data=body), h11.EndOfMessage()):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


def protocol_of(front: Front) -> Callable[..., LittleByLittle]:
    """Makes protocols as uvicorn's configuration takes them."""
    return lambda **arguments: LittleByLittle(front, **arguments)
