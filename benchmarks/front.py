"""What attacks on connections cost a web server: memory, and how soon /healthz answers others.

Run: python -m benchmarks.front [--seconds 10] [--servers service,uvicorn-h11]

`service` is `difficulty serve`, without keys, as every program of its machine may use it. The other
servers have their default limits and an application that reads bodies and answers: what a front
does by itself. Those that are not installed are left out (`pip install granian hypercorn`). Every
attack is a process of a low priority on the same cores and meets a new server; /healthz is asked on
new connections from another address. Memory is that of the server and its processes, at most, above
what it was before.
"""

import argparse
import contextlib
import http.client
import itertools
import multiprocessing
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from importlib.util import find_spec
from multiprocessing.synchronize import Event
from pathlib import Path

import numpy as np

from benchmarks import attackers
from benchmarks.attackers import Address
from benchmarks.machine import machine
from benchmarks.running import listening_url

PIPELINED_BYTES = 40 << 20
REQUEST = attackers.GET + b"\r\n"
FORM = b"POST /sign-in HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\na"
HUGE_HEAD = attackers.GET + b"X-A: 1\r\n" * 7500 + b"\r\n"
OTHER = ("127.0.0.9", 0)
ASK_EVERY = 0.02  # seconds
NO_ANSWER = 5.0  # seconds after which /healthz is given up

Attack = Callable[[Address, Event], None]


async def application(scope, receive, send):  # type: ignore[no-untyped-def] # noqa: ANN001, ANN201
    """Reads the body and answers; what the other servers run."""
    if scope["type"] != "http":
        return
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"15")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b'{"status":"ok"}'})


APPLICATION = "benchmarks.front:application"
UVICORN = ("uvicorn", APPLICATION, "--no-access-log", "--lifespan", "off", "--port")
SERVERS: dict[str, tuple[str, ...]] = {
    "service": ("difficulty_service", "serve", "--port"),
    "uvicorn-h11": (*UVICORN[:-1], "--http", "h11", "--port"),
    "uvicorn-httptools": (*UVICORN[:-1], "--http", "httptools", "--port"),
    "granian": ("granian", APPLICATION, "--interface", "asginl", "--port"),
    "hypercorn": ("hypercorn", APPLICATION, "--bind"),
}
"""Modules and arguments of the servers, up to the port."""


def pipelining(request: bytes, connections: int) -> Attack:
    """Sends requests without waiting for answers, which it takes, on some connections."""
    piece = request * (attackers.PIECE // len(request))

    def attack(address: Address, stop: Event) -> None:
        def drain(connection: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while connection.recv(attackers.PIECE):
                    pass

        def send() -> None:
            with contextlib.suppress(OSError), attackers.connect(address, 1) as connection:
                threading.Thread(target=drain, args=(connection,), daemon=True).start()
                for _ in range(PIPELINED_BYTES // len(piece)):
                    connection.sendall(piece)
                stop.wait()

        for _ in range(connections):
            threading.Thread(target=send, daemon=True).start()
        stop.wait()

    return attack


def unread(address: Address, stop: Event) -> None:
    """Pipelines requests on eight connections and takes no answers."""
    opened = [attackers.connect(address, 1) for _ in range(8)]
    for connection in itertools.cycle(opened):
        if stop.wait(0.001):
            return
        connection.settimeout(0)
        with contextlib.suppress(OSError):
            connection.send(REQUEST * 1000)


def slow(start: bytes, connections: int) -> Attack:
    """Connections that begin like this and send a byte every second."""
    slowly = attackers.slow(start, connections)
    return lambda address, stop: slowly(attackers.Target(address, "", "", "", (), ()), stop)


def idle(address: Address, stop: Event) -> None:
    """Opens 900 connections that send nothing; others take the place of closed ones."""
    opened: list[socket.socket] = []
    while not stop.wait(attackers.TICK):
        with contextlib.suppress(OSError):
            opened.append(attackers.connect(address, 1 + len(opened) % 200))
        if len(opened) > 900:  # noqa: PLR2004
            opened.pop(0).close()


def repeated(request: bytes, connections: int) -> Attack:
    """Sends a request on each of some connections, takes the answers, and sends it again."""

    def attack(address: Address, stop: Event) -> None:
        opened: dict[int, socket.socket] = {}
        while not stop.is_set():
            for number in range(connections):
                with contextlib.suppress(OSError):
                    if number not in opened:
                        opened[number] = attackers.connect(address, 1)
                    opened[number].settimeout(5)
                    opened[number].sendall(request)
            for number, connection in list(opened.items()):
                try:
                    answer = connection.recv(attackers.PIECE)
                except OSError:
                    answer = b""
                if not answer:
                    opened.pop(number).close()

    return attack


def send_nothing(_: Address, stop: Event) -> None:
    """No attack, to compare the others with."""
    stop.wait()


ATTACKS: dict[str, Attack] = {
    "none": send_nothing,
    "pipelining, 1 connection": pipelining(REQUEST, 1),
    "pipelining, 8 connections": pipelining(REQUEST, 8),
    "pipelining forms, 8 connections": pipelining(FORM, 8),
    "pipelining, answers not taken": unread,
    "300 slow heads": slow(attackers.GET, 300),
    "300 slow bodies": slow(attackers.LONG + b"\r\n", 300),
    "900 idle connections": idle,
    "heads of 7,500 headers, 8 connections": repeated(HUGE_HEAD, 8),
    "100 requests at once, repeated": repeated(
        b"GET /v1/backbones HTTP/1.1\r\nHost: localhost\r\n\r\n", 100
    ),
}


@contextmanager
def running(name: str, folder: Path) -> Iterator[tuple[Address, int]]:
    """A server; its address and process."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
    module, *arguments = SERVERS[name]
    log = folder / "server.log"
    where = f"127.0.0.1:{port}" if name == "hypercorn" else str(port)
    variables = {"DIFFICULTY_DATA_DIR": str(folder / "data")}
    with log.open("wb") as file:
        server = subprocess.Popen(  # noqa: S603 - our own command
            [sys.executable, "-m", module, *arguments, where],
            env=os.environ | variables,
            cwd=Path(__file__).parents[1],
            stdout=file,
            stderr=file,
        )
    try:
        if name == "service":
            listening_url(server, log)
        address = ("127.0.0.1", port)
        while ask(address) is None:
            if server.poll() is not None:
                sys.exit(f"{name} ended: {log.read_text()}")
            time.sleep(0.1)
        time.sleep(1)
        yield address, server.pid
    finally:
        server.terminate()
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            server.kill()


def ask(address: Address) -> float | None:
    """Milliseconds until /healthz answers on a new connection; None if it does not."""
    began = time.perf_counter()
    with closing(http.client.HTTPConnection(*address, NO_ANSWER, OTHER)) as connection:
        try:
            connection.request("GET", "/healthz")
            if connection.getresponse().status != http.client.OK:
                return None
        except (OSError, http.client.HTTPException):
            return None
    return 1000 * (time.perf_counter() - began)


def memory(process: int) -> int:
    """Bytes in memory of a process and of those that it has started."""
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
        lists = [each.read_text() for each in Path(f"/proc/{process}/task").glob("*/children")]
    except OSError:  # it has ended
        return 0
    children = sum(memory(int(child)) for child in " ".join(lists).split())
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") + children


def measured(name: str, attack: Attack, seconds: float) -> str:
    """Growth in MB; median, 99th percentile, longest time of /healthz; those not answered."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address, process = stack.enter_context(running(name, folder))
        before = most = memory(process)
        stop = multiprocessing.Event()
        attacker = multiprocessing.Process(target=run, args=(attack, address, stop))
        attacker.start()
        began, times = time.monotonic(), list[float | None]()
        while time.monotonic() < began + seconds:
            time.sleep(ASK_EVERY)
            times.append(ask(address))
            most = max(most, memory(process))
        stop.set()
        attacker.join(5)
        attacker.kill()
    known = [each for each in times if each is not None] or [float("nan")]
    p50, p99 = np.percentile(known, [50, 99])
    lost = times.count(None)
    growth = (most - before) / 1e6
    return f"{growth:.0f} | {p50:.1f} | {p99:.1f} | {max(known):.0f} | {lost}"


def run(attack: Attack, address: Address, stop: Event) -> None:
    """Attacks with a low priority."""
    os.nice(attackers.NICENESS)
    attack(address, stop)


def main() -> None:
    """Runs each attack on each server, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each attack")
    parser.add_argument("--servers", default=",".join(SERVERS), help="names, with commas")
    parser.add_argument("--only", default="", help="part of the names of the attacks to run")
    arguments = parser.parse_args()
    multiprocessing.set_start_method("fork")
    print(machine(), f"{os.getloadavg()[0]:.1f} other processes at work")
    print("| attack | server | MB more | p50, ms | p99, ms | longest, ms | not answered |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for attack, name in itertools.product(ATTACKS, arguments.servers.split(",")):
        if arguments.only in attack and find_spec(SERVERS[name][0]) is not None:
            row = measured(name, ATTACKS[attack], arguments.seconds)
            print(f"| {attack} | {name} | {row} |", flush=True)


if __name__ == "__main__":
    main()
