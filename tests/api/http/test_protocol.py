"""What a connection does with requests before the application gets them."""

import asyncio
import socket
from collections.abc import Callable

import pytest
from starlette.types import Receive, Scope, Send
from uvicorn.config import Config
from uvicorn.server import ServerState

from api.http.connections import ConnectionLimits, Connections
from api.http.protocol import protocol_with

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


def protocols(started: list[str]) -> Callable[[], asyncio.Protocol]:
    """Protocols of an application that notes the paths of its requests."""

    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        started.append(scope["path"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body"})

    config = Config(app, log_config=None, access_log=False, ws="none", lifespan="off")
    config.load()
    create, state = protocol_with(Connections(ConnectionLimits())), ServerState()
    return lambda: create(config=config, server_state=state, app_state={})


async def test_a_health_check_starts_before_the_requests_that_came_before_it() -> None:
    started: list[str] = []
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocols(started), "127.0.0.1", 0)
    address = server.sockets[0].getsockname()
    paths = [*(f"/{number}" for number in range(20)), "/healthz"]
    clients = []
    for path in paths:  # all have arrived when the loop runs next
        client = socket.create_connection(address)
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        clients.append(client)

    while len(started) < len(paths):
        await asyncio.sleep(0)

    assert started.index("/healthz") < 3
    assert [path for path in started if path != "/healthz"] == paths[:-1]
    for client in clients:
        client.close()
    server.close()
    await asyncio.sleep(0.01)
