"""What it costs to limit the heads of requests: uvicorn's two parsers, and ours on the faster one.

Run: python benchmarks/parsers.py [--rounds 7]

Each protocol gets the same bytes from a transport that only drops the answers, as pieces of 64 KiB,
and an application that reads the body and answers. Microseconds are those of the processor, so that
other work on the machine does not count; the rounds take turns, and the fastest of each counts.
"""

import argparse
import asyncio
import time
from collections.abc import Callable
from typing import Any

from machine import machine
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from api.http.connections import ConnectionLimits, Connections
from api.http.protocol import GuardedProtocol

PIECE = 1 << 16
HEADERS = b"".join(b"X-Header-%d: a value of some length\r\n" % number for number in range(8))
SMALL = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + HEADERS + b"\r\n"
LARGE_BYTES = 1_000_000  # about what 16 photographs have
LARGE = (
    b"POST /score HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n" % LARGE_BYTES
    + HEADERS
    + b"\r\n"
    + b"x" * LARGE_BYTES
)


class Transport(asyncio.Transport):
    """Takes answers and drops them."""

    def get_extra_info(self, name: str, default: object = None) -> object:
        """The address of a client."""
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else default

    def write(self, data: object) -> None:
        """Drops an answer."""

    def get_write_buffer_size(self) -> int:
        """Nothing is ever left to send."""
        return 0

    def is_closing(self) -> bool:
        """Stays open."""
        return False

    def close(self) -> None:
        """Has nothing to close."""

    def pause_reading(self) -> None:
        """The next piece waits until the application has taken the last one anyway."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


async def application(_scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401
    """Reads the body and answers."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-length", b"2")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"ok"})


async def microseconds(create: Callable[..., Any], request: bytes, repeats: int) -> float:
    """Processor time of a request on a connection that is kept."""
    config = Config(application, log_config=None, access_log=False, lifespan="off")
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    protocol = create(config=config, server_state=state, app_state={}, _loop=loop)
    protocol.connection_made(Transport())
    pieces = [request[start : start + PIECE] for start in range(0, len(request), PIECE)]
    began = time.process_time()
    for number in range(1, repeats + 1):
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)
        while state.total_requests < number:
            await asyncio.sleep(0)
    spent = time.process_time() - began
    protocol.connection_lost(None)
    return 1e6 * spent / repeats


def guarded(**arguments: Any) -> GuardedProtocol:  # noqa: ANN401
    """Our protocol with its default limits."""
    return GuardedProtocol(Connections(ConnectionLimits()), **arguments)


def main() -> None:
    """Measures in rounds, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    protocols = {"h11": H11Protocol, "httptools": HttpToolsProtocol, "httptools, limited": guarded}
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in protocols}
    for _ in range(arguments.rounds):
        for name, create in protocols.items():
            small = asyncio.run(microseconds(create, SMALL, 1000))
            times[name].append((small, asyncio.run(microseconds(create, LARGE, 100))))
    print(machine())
    print(f"{'microseconds of a request':26} {'small':>8} {'of 1 MB':>8}")
    for name, column in times.items():
        small, large = (min(values) for values in zip(*column, strict=True))
        print(f"{name:26} {small:8.0f} {large:8.0f}")


if __name__ == "__main__":
    main()
