"""Requests that no client library would send, written byte by byte."""

import contextlib
import socket

from tests.api.live.running import Service

HEAD = b"Host: localhost\r\n"
POST = b"POST /v1/jobs HTTP/1.1\r\n" + HEAD


def answer_of(connection: socket.socket) -> bytes:
    """What the server sends until it closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionError):
        while piece := connection.recv(1 << 16):
            received += piece
    return received


def is_well(service: Service) -> bool:
    """Whether a new client gets its answer."""
    with service.client() as client:
        return bool(client.get("/healthz").json() == {"status": "ok"})
