"""Requests sent byte for byte, over connections that are used again."""

import contextlib
import http.client
import socket
from dataclasses import dataclass, field, replace
from urllib.parse import quote, urlencode

ANSWER_SECONDS = 60.0
HEAD_SECONDS = 0.3
"""Seconds after which no answer to a request is expected that may not be one."""


@dataclass(frozen=True)
class Request:
    """A request that is still to be written out."""

    method: str  # its method
    path: str  # path, whose characters are percent-encoded where they must be
    query: dict[str, str] = field(default_factory=dict)  # fields of the query
    headers: dict[str, str] = field(default_factory=dict)  # headers besides those of the connection
    body: bytes = b""  # the body

    def head(self) -> bytes:
        """Its line and headers, with the blank line at their end."""
        query = f"?{urlencode(self.query)}" if self.query else ""
        address = quote(self.path, safe="/%:;@$&'()*+,=~{}") + query
        lines = [f"{self.method} {address} HTTP/1.1", "Host: localhost"]
        lines += [f"{name}: {_one_line(value)}" for name, value in self.headers.items()]
        if self.body or self.method not in {"GET", "HEAD", "DELETE"}:
            lines.append(f"Content-Length: {len(self.body)}")
        return "\r\n".join([*lines, "", ""]).encode(errors="replace")

    def with_headers(self, headers: dict[str, str]) -> "Request":
        """The same with more headers; its own ones win."""
        return replace(self, headers=headers | self.headers)


def _one_line(value: str) -> str:
    return value.replace("\r", "").replace("\n", "").replace("\x00", "")


@dataclass(frozen=True)
class Answer:
    """Status and body of an answer; status 0 where none came."""

    status: int
    content: bytes = b""


@dataclass
class Wire:
    """Sends requests to one address."""

    address: tuple[str, int]  # host and port
    connection: socket.socket | None = None  # the open connection, if there is one

    def send(self, request: Request) -> Answer:
        """The answer to a request; a connection that was closed meanwhile is replaced once."""
        for _ in range(2):
            connection = self.connection or self._connected(ANSWER_SECONDS)
            self.connection = None
            with contextlib.suppress(ConnectionError, http.client.BadStatusLine):
                answer, stays_open = _exchange(
                    connection, request.head() + request.body, request.method
                )
                self.connection = connection if stays_open else None
                if not stays_open:
                    connection.close()
                return answer
            connection.close()
        return Answer(0)

    def send_raw(self, content: bytes) -> Answer:
        """The answer to bytes that may be no request, for which the server may wait in vain."""
        connection = self._connected(HEAD_SECONDS)
        with connection, contextlib.suppress(OSError, http.client.HTTPException):
            return _exchange(connection, content, "GET")[0]
        return Answer(0)

    def _connected(self, timeout: float) -> socket.socket:
        made = socket.create_connection(self.address, timeout)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made


def _exchange(connection: socket.socket, content: bytes, method: str) -> tuple[Answer, bool]:
    # A server that refuses a body need not read it; its answer is there all the same.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        connection.sendall(content)
    with http.client.HTTPResponse(connection, method=method) as response:
        response.begin()
        return Answer(response.status, response.read()), not response.will_close
