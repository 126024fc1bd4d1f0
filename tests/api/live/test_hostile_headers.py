"""Invented keys and false lengths of bodies: all are refused, and no process grows."""

import http.client
import socket
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from tests.api.live.running import Service, Tenants

ROOM = 300 << 20  # bytes that a process may grow by


@pytest.mark.slow
def test_an_invented_key_is_refused(service: Service, tenants: Tenants) -> None:
    good = tenants.mine
    keys = [
        good[:-1],
        good + "a",
        good.swapcase(),
        good[::-1],
        " ",
        "null",
        "a" * 190,
        "a" * 10_000,
        "' OR 1=1 --",
        "%00",
        "é",
        *(good[:place] + "x" + good[place + 1 :] for place in range(0, len(good), 2)),
    ]
    headers = [
        *({"Authorization": f"Bearer {key}"} for key in keys if key != good),
        *({"X-API-Key": key} for key in keys if key != good),
        {},
        {"Authorization": good},
        {"Authorization": f"Basic {good}"},
        {"Authorization": "Bearer"},
        {"Cookie": f"key={good}"},
    ]
    parts = urlsplit(service.url)
    statuses = []
    with closing(http.client.HTTPConnection(str(parts.hostname), parts.port)) as connection:
        for each in headers:
            connection.request("GET", "/v1/jobs", headers=each)
            answer = connection.getresponse()
            answer.read()
            statuses.append(answer.status)

    assert set(statuses) <= {401, 400, 431}
    assert tenants.are_intact(service)


LIES = {
    "a length that is never sent": (b"Content-Length: 5000\r\n\r\n", b"{}"),
    "a negative length": (b"Content-Length: -5\r\n\r\n", b"{}"),
    "a length that is no number": (b"Content-Length: many\r\n\r\n", b"{}"),
    "two lengths": (b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n", b"{}x"),
    "a length and chunks": (
        b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"5\r\n{}{}{\r\n0\r\n\r\n",
    ),
    "a length beyond every number": (b"Content-Length: " + b"9" * 400 + b"\r\n\r\n", b"{}"),
    "a length over the limit": (b"Content-Length: 99999999999\r\n\r\n", b"{}"),
    "a chunk of no size": (b"Transfer-Encoding: chunked\r\n\r\n", b"zz\r\n{}\r\n0\r\n\r\n"),
    "chunks over the limit": (
        b"Transfer-Encoding: chunked\r\n\r\n",
        (b"10000\r\n" + b"x" * 0x10000 + b"\r\n") * 40 + b"0\r\n\r\n",
    ),
    "a small length and a large body": (b"Content-Length: 2\r\n\r\n", b"{}" + b"x" * 4_000_000),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("target", ["POST /v1/jobs", "PUT upload", "POST /v1/gaussians/x/score"])
def test_bodies_that_lie_about_their_length_are_counted(
    shared_service: Service, lie: str, target: str
) -> None:
    headers, body = LIES[lie]
    with shared_service.client() as client:
        upload = client.post("/v1/uploads", json={"format": "zip", "size": 1000})
        address = upload.headers.get("Location", "/v1/uploads/x")
    before = shared_service.peak_memories()

    line = target.replace("upload", address).encode() + b" HTTP/1.1\r\nHost: localhost\r\n"
    status = raw_status(shared_service.url, line + headers + body)

    assert status is None or 200 <= status < 500
    assert shared_service.growth_since(before) < ROOM
    with shared_service.client() as client:
        assert client.get("/healthz").status_code == 200


def raw_status(url: str, request: bytes) -> int | None:
    """Status of the first answer to some bytes; None if the connection just ends."""
    parts = urlsplit(url)
    with socket.create_connection((str(parts.hostname), parts.port or 80), 20) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = connection.recv(1 << 16)
        except OSError:  # the server had enough
            return None
    return int(answer.split(b" ", 2)[1]) if answer.startswith(b"HTTP/1.1 ") else None
