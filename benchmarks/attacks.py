"""How soon /healthz answers while clients attack the service with what needs no key.

Run: python benchmarks/attacks.py [--seconds 10]

The server runs as `difficulty serve` starts it, the attackers in a process of their own. /healthz
is asked on a new connection every time, as the probes of containers and proxies do, from one of the
addresses of the attackers.
"""

import argparse
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from machine import machine

MOST_MILLISECONDS = 20.0
ASK_EVERY = 0.01  # seconds
PIECE = 1 << 16
SLOW = 300  # connections
MANY = 1500
ADDRESSES = 64
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n"
PAGE = b"GET /static/vendor/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"

Address = tuple[str, int]
Attack = Callable[[Address, Event], None]


def connect(address: Address, source: int = 0) -> socket.socket:
    """A connection from one of many addresses of this machine; 0 is the usual one."""
    own = f"127.0.1.{source}" if source else "127.0.0.1"
    return socket.create_connection(address, 5, (own, 0))


def endless(start: bytes, piece: bytes) -> Attack:
    """Sends a request that begins like this and goes on, and again when it is refused."""

    def attack(address: Address, stop: Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(address) as connection:
                connection.sendall(start)
                while not stop.is_set():
                    connection.sendall(piece)

    return attack


def slow(start: bytes, connections: int, addresses: int = 1) -> Attack:
    """Keeps connections open which begin like this and send one more byte every second.

    Those that the server closes are opened again, at most a thousand a second.
    """

    def attack(address: Address, stop: Event) -> None:
        sources = itertools.cycle(range(addresses))
        opened: list[socket.socket] = []
        while not stop.is_set():
            while len(opened) < connections and not stop.is_set():
                with contextlib.suppress(OSError):
                    connection = connect(address, next(sources))
                    connection.sendall(start)
                    connection.settimeout(0)
                    opened.append(connection)
                stop.wait(0.001)
            stop.wait(1)
            opened = [connection for connection in opened if goes_on(connection)]

    return attack


def goes_on(connection: socket.socket) -> bool:
    """Sends one more byte; whether the connection is still open."""
    try:
        connection.send(b"a")
        if connection.recv(PIECE, socket.MSG_PEEK):
            return True
    except BlockingIOError:
        return True
    except OSError:
        pass
    connection.close()
    return False


def never_read(address: Address, stop: Event) -> None:
    """Asks for pages again and again on many connections and takes none of the answers."""
    opened = [connect(address) for _ in range(100)]
    while not stop.is_set():
        for connection in opened:
            connection.settimeout(0)
            with contextlib.suppress(OSError):
                connection.send(PAGE * 10)
        stop.wait(1)


def wait(_address: Address, stop: Event) -> None:
    """Attacks nothing."""
    stop.wait()


ATTACKS: dict[str, Attack] = {
    "none": wait,
    "endless headers": endless(GET, b"X-A: 1\r\n" * 8000),
    "one endless header": endless(GET + b"X-A: ", b"a" * PIECE),
    "endless trailers": endless(CHUNKED + b"0\r\n", b"X-A: 1\r\n" * 8000),
    f"{SLOW} slow heads": slow(GET, SLOW),
    f"{SLOW} slow bodies": slow(LONG, SLOW),
    f"{MANY} slow heads, many addresses": slow(GET, MANY, ADDRESSES),
    f"{MANY} slow bodies, many addresses": slow(LONG, MANY, ADDRESSES),
    "100 that take no answer": never_read,
}


@contextmanager
def running_server(folder: Path) -> Iterator[tuple[Address, int]]:
    """A server with its default limits; its address and process id."""
    values = {"DATA_DIR": str(folder / "data"), "LOG_LEVEL": "info"}
    environment = os.environ | {f"DIFFICULTY_{name}": value for name, value in values.items()}
    log = folder / "server.log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "difficulty_service", "serve", "--port", "0"]
        server = subprocess.Popen(command, env=environment, stderr=file)  # noqa: S603
    try:
        while not (found := re.search(r'"url": "([^"]+)"', log.read_text())):
            if server.poll() is not None:
                sys.exit(f"the server ended: {log.read_text()}")
            time.sleep(0.1)
        parts = urlsplit(found[1])
        address = (str(parts.hostname), int(parts.port or 0))
        ask(address)
        yield address, server.pid
    finally:
        server.terminate()
        server.wait()


def ask(address: Address) -> float:
    """Milliseconds until /healthz has answered on a new connection."""
    began = time.perf_counter()
    with closing(http.client.HTTPConnection(*address, timeout=60)) as connection:
        connection.request("GET", "/healthz")
        answer = connection.getresponse()
        content = answer.read()
    if answer.status != http.client.OK or json.loads(content) != {"status": "ok"}:
        sys.exit(f"{answer.status}: {content[:500]!r}")
    return 1000 * (time.perf_counter() - began)


def attacked(attack: Attack, address: Address, seconds: float) -> list[float]:
    """Milliseconds of /healthz while the attack runs and begins."""
    stop = multiprocessing.Event()
    attacker = multiprocessing.Process(target=attack, args=(address, stop))
    attacker.start()
    end = time.monotonic() + seconds
    milliseconds = []
    while time.monotonic() < end:
        time.sleep(ASK_EVERY)
        milliseconds.append(ask(address))
    stop.set()
    attacker.join()
    return milliseconds


def status_of(process: int) -> tuple[int, int]:
    """Peak memory in MiB and open descriptors of a process."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{process}/status").read_text())
    return int(peak[1]) >> 10 if peak else 0, len(list(Path(f"/proc/{process}/fd").iterdir()))


def row(name: str, milliseconds: Sequence[float], status: tuple[int, int]) -> str:
    """A row of the table."""
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return (
        f"{name:36} {p50:6.1f} {p99:6.1f} {max(milliseconds):6.1f} ms"
        f"  {len(milliseconds):5} asked  {status[0]:5} MiB at most  {status[1]:5} descriptors"
    )


def main() -> None:
    """Runs each attack on one server, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--only", default="", help="part of the names of the attacks to run")
    arguments = parser.parse_args()
    multiprocessing.set_start_method("fork")
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    print(machine())
    print(f"{'/healthz during the attack':36} {'p50':>6} {'p99':>6} {'max':>6}")
    slowest = 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        running_server(Path(folder)) as (address, pid),
    ):
        for name, attack in ATTACKS.items():
            if arguments.only not in name:
                continue
            milliseconds = attacked(attack, address, arguments.seconds)
            slowest = max(slowest, float(np.percentile(milliseconds, 99)))
            print(row(name, milliseconds, status_of(pid)), flush=True)
    print(f"{'PASS' if slowest <= MOST_MILLISECONDS else 'FAIL'}: {MOST_MILLISECONDS:.0f} ms asked")


if __name__ == "__main__":
    main()
