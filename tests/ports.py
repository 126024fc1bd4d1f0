"""Ports of servers that must be told their port before they start."""

import secrets
import socket

BELOW_THOSE_OF_CONNECTIONS = range(20_000, 32_768)
"""The system gives these neither to a connection nor to a server that asks for any port."""


def unused_port() -> int:
    """A port of this machine that stays free until the server that is told it starts."""
    while True:
        port = secrets.choice(BELOW_THOSE_OF_CONNECTIONS)
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        return port
