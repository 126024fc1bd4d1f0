"""What a client sends has an end: heads, trailers and what surrounds chunks are cut off."""

import contextlib
import os
import socket
from collections.abc import Callable

import pytest

from tests.api.live.raw_connections import HEAD, POST, answer_of, is_well
from tests.api.live.running import Service

AHEAD = int(os.environ.get("DIFFICULTY_AHEAD", 4 << 20))  # bytes of requests; 40 MB in `make fuzz`
ROOM = 40 << 20  # bytes that the server may grow by
CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"


def send_for_ever(connection: socket.socket, start: bytes, piece: bytes) -> int:
    """Sends until the server ends it or 150 MB; the number of bytes sent."""
    sent = 0
    with contextlib.suppress(OSError):
        connection.sendall(start)
        while sent < 150_000_000:
            connection.sendall(piece)
            sent += len(piece)
    return sent


ENDLESS = {
    "headers": (POST, b"X-A: 1\r\n" * 8000),
    "one header": (POST + b"X-A: ", b"a" * 65536),
    "an address": (b"GET /", b"a" * 65536),
    "trailers": (CHUNKED + b"0\r\n", b"X-A: 1\r\n" * 8000),
    "the size of a chunk": (CHUNKED, b"0" * 65536),
    "the extension of a chunk": (CHUNKED + b"5;", b"a" * 65536),
    "empty lines": (b"", b"\r\n" * 32768),
}


@pytest.mark.slow
@pytest.mark.parametrize("part", ENDLESS)
def test_what_has_no_end_is_cut_off_and_not_kept(
    guarded: Service, connect: Callable[..., socket.socket], part: str
) -> None:
    assert is_well(guarded)
    before = guarded.peak_memories()

    sent = send_for_ever(connect(), *ENDLESS[part])

    assert sent < 20_000_000  # what the kernel's buffers take
    assert guarded.growth_since(before) < ROOM
    assert is_well(guarded)


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/healthz", b"/static/vendor/htmx.min.js"])
@pytest.mark.parametrize("number", [1, 8])
def test_requests_that_are_sent_ahead_are_not_kept(
    guarded: Service, connect: Callable[..., socket.socket], number: int, path: bytes
) -> None:
    assert is_well(guarded)
    before = guarded.peak_memories()
    piece = (b"GET " + path + b" HTTP/1.1\r\n" + HEAD + b"\r\n") * 1000
    opened = [connect() for _ in range(number)]

    for connection in opened:
        # Answers are not taken, so that the server has no reason to go on.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.settimeout(0.2)
        with contextlib.suppress(OSError):
            for _ in range(AHEAD // len(piece)):
                connection.sendall(piece)

    assert is_well(guarded)
    assert guarded.growth_since(before) < 20_000_000


@pytest.mark.slow
def test_a_large_head_is_refused_with_the_limit(connect: Callable[..., socket.socket]) -> None:
    connection = connect()

    connection.sendall(POST + b"X-A: " + b"a" * 16384 + b"\r\n\r\n")

    answer = answer_of(connection)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"/problems/headers-too-large" in answer
    assert b"16,384" in answer


@pytest.mark.slow
def test_many_short_headers_count_more_than_their_bytes(
    connect: Callable[..., socket.socket],
) -> None:
    connection = connect()

    connection.sendall(POST + b"X-A: 1\r\n" * 500 + b"\r\n")

    assert b"/problems/headers-too-large" in answer_of(connection)


@pytest.mark.slow
def test_many_requests_on_one_connection_are_no_large_head(
    connect: Callable[..., socket.socket],
) -> None:
    connection = connect()
    last = b"GET /healthz HTTP/1.1\r\nConnection: close\r\n" + HEAD + b"\r\n"

    connection.sendall((b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n") * 400 + last)

    assert answer_of(connection).count(b"HTTP/1.1 200 OK") == 401
