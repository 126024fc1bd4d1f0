"""Clients that send too much, too slowly or on too many connections are ended, others are not."""

import contextlib
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from api.http.connections import RESERVED
from tests.api.live.raw_connections import HEAD, POST, answer_of, is_well
from tests.api.live.running import Service

BODY = POST + b"Content-Length: 1000000\r\n\r\n"
PATIENCE = 20.0  # seconds; more than any limit


def problem_of(answer: bytes) -> tuple[int, str]:
    """Status and type of the problem in an answer."""
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), str(json.loads(body)["type"])


@pytest.mark.slow
@pytest.mark.parametrize("start", [b"", b"GET / HTTP/1.1\r\n"])
def test_a_head_that_never_ends_is_given_up(
    connect: Callable[..., socket.socket], start: bytes
) -> None:
    connection = connect()

    connection.sendall(start)

    assert answer_of(connection) == b""


@pytest.mark.slow
def test_an_idle_connection_does_not_stay_open_by_empty_lines(
    connect: Callable[..., socket.socket],
) -> None:
    connection = connect()
    connection.sendall(b"GET /healthz HTTP/1.1\r\n" + HEAD + b"\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 200")

    end = time.monotonic() + PATIENCE
    with contextlib.suppress(OSError):
        while time.monotonic() < end:
            connection.sendall(b"\r\n")
            time.sleep(0.1)

    assert time.monotonic() < end


@pytest.mark.slow
def test_a_body_that_trickles_is_given_up_with_the_rate_that_is_asked(
    connect: Callable[..., socket.socket],
) -> None:
    connection = connect()
    connection.sendall(BODY)
    connection.settimeout(0.1)

    answer = b""
    end = time.monotonic() + PATIENCE
    while not answer and time.monotonic() < end:
        with contextlib.suppress(TimeoutError):
            connection.sendall(b"a")
            answer = connection.recv(1 << 16)
    connection.settimeout(PATIENCE)
    answer += answer_of(connection)

    assert problem_of(answer) == (408, "/problems/too-slow")
    assert b"2,000 bytes per second" in answer


@pytest.mark.slow
def test_an_upload_that_keeps_up_the_rate_may_take_longer_than_every_limit(
    guarded: Service,
) -> None:
    content = b"x" * 40_000

    def slowly() -> Iterator[bytes]:
        for start in range(0, len(content), 2000):
            time.sleep(0.2)
            yield content[start : start + 2000]

    with guarded.client() as client:
        upload = client.post("/v1/uploads", json={"format": "zip"}).json()
        answer = client.put(upload["links"]["self"], content=slowly())

    assert answer.json()["received"] == len(content)


@pytest.mark.slow
def test_a_client_that_takes_no_answer_is_given_up(connect: Callable[..., socket.socket]) -> None:
    connection = connect()
    connection.settimeout(1)
    request = b"GET /static/vendor/htmx.min.js HTTP/1.1\r\n" + HEAD + b"\r\n"

    end = time.monotonic() + PATIENCE
    with contextlib.suppress(ConnectionError):
        while time.monotonic() < end:
            with contextlib.suppress(TimeoutError):
                connection.sendall(request * 100)
            time.sleep(0.1)

    assert time.monotonic() < end


def open_busy(connect: Callable[..., socket.socket], number: int, source: int) -> None:
    """Opens connections whose requests never become complete but have a head."""
    for _ in range(number):
        connect(source).sendall(BODY)


@pytest.mark.slow
def test_silent_connections_make_room_for_new_ones(
    guarded: Service, connect: Callable[..., socket.socket]
) -> None:
    silent = [connect(source) for source in range(2, 12) for _ in range(10)]

    assert is_well(guarded)
    with guarded.client() as client:
        assert client.get("/v1/jobs").status_code == 200
    closed = [connection for connection in silent if is_closed(connection)]
    assert len(closed) >= len(silent) - 24 - RESERVED


def is_closed(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


@pytest.mark.slow
@pytest.mark.parametrize("sources", [[1], [2, 3]], ids=["of its own address", "in all"])
def test_health_is_told_where_all_connections_are_busy_and_the_rest_is_refused(
    guarded: Service, connect: Callable[..., socket.socket], sources: list[int]
) -> None:
    for source in sources:
        open_busy(connect, 12, source)

    with guarded.client() as client:
        refused = client.get("/v1/jobs")
    assert is_well(guarded)
    assert refused.status_code == 503
    assert refused.json()["type"] == "/problems/unavailable"
    assert int(refused.headers["Retry-After"]) >= 1


@pytest.mark.slow
def test_an_address_with_many_connections_leaves_room_for_others(
    guarded: Service, connect: Callable[..., socket.socket]
) -> None:
    open_busy(connect, 30, source=2)

    with guarded.client() as client:
        assert client.get("/v1/jobs").status_code == 200
