"""Clients that attack the service, each in a process of its own with a low priority."""

import contextlib
import http.client
import io
import itertools
import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from math import ceil
from multiprocessing.synchronize import Event

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

PIECE = 1 << 16
TICK = 0.02  # seconds
OPENED_PER_TICK = 10
KEPT = 200  # connections of a flood
NICENESS = 10
GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
LONG = b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n"
PAGE = b"GET /static/vendor/htmx.min.js HTTP/1.1\r\nHost: localhost\r\n\r\n"
ARROW = {"Content-Type": "application/vnd.apache.arrow.stream"}

Address = tuple[str, int]
Request = tuple[str, str, bytes, dict[str, str]]


@dataclass(frozen=True)
class Target:
    """A running service and what one of its keys has there.

    Attributes:
        address: Where it listens.
        key: Secret of the key.
        job: Id of a finished job.
        waiting_job: Id of a job that no worker takes.
        images: Ids of the images of the finished job.
        photographs: Files of some of them.
    """

    address: Address
    key: str
    job: str
    waiting_job: str
    images: tuple[str, ...]
    photographs: tuple[bytes, ...]


Attack = Callable[[Target, Event], None]


def run(attack: Attack, target: Target, stop: Event) -> None:
    """Attacks with a low priority until it is told to stop."""
    os.nice(NICENESS)
    attack(target, stop)


def connect(address: Address, source: int = 0) -> socket.socket:
    """A connection from one of many addresses of this machine; 0 is the usual one."""
    own = f"127.0.1.{source}" if source else "127.0.0.1"
    return socket.create_connection(address, 5, (own, 0))


def nothing(_target: Target, stop: Event) -> None:
    """Attacks nothing."""
    stop.wait()


def endless(start: bytes, piece: bytes) -> Attack:
    """Sends a request that begins like this and goes on, and again when it is refused."""

    def attack(target: Target, stop: Event) -> None:
        while not stop.is_set():
            with contextlib.suppress(OSError), connect(target.address) as connection:
                connection.sendall(start)
                while not stop.is_set():
                    connection.sendall(piece)

    return attack


def slow(start: bytes, connections: int, addresses: int = 1, *, has_key: bool = False) -> Attack:
    """Keeps connections open which begin like this and send one more byte every second.

    At most 500 are opened in a second, also of those that take the place of closed ones.
    """

    def attack(target: Target, stop: Event) -> None:
        sources = itertools.cycle(range(addresses))
        head = start + (f"X-API-Key: {target.key}\r\n\r\n".encode() if has_key else b"")
        opened: deque[socket.socket] = deque()
        while not stop.wait(TICK):
            for _ in range(min(OPENED_PER_TICK, connections - len(opened))):
                with contextlib.suppress(OSError):
                    connection = connect(target.address, next(sources))
                    connection.sendall(head)
                    opened.append(connection)
            for _ in range(ceil(len(opened) * TICK)):
                connection = opened.popleft()
                if goes_on(connection):
                    opened.append(connection)

    return attack


def goes_on(connection: socket.socket) -> bool:
    """Sends one more byte; whether the connection is still open, as far as is known."""
    try:
        connection.send(b"a")
    except OSError:
        connection.close()
        return False
    return True


def flood(target: Target, stop: Event) -> None:
    """Opens 500 connections a second, each with a part of a head, and closes the oldest."""
    opened: deque[socket.socket] = deque()
    while not stop.wait(TICK):
        for _ in range(OPENED_PER_TICK):
            with contextlib.suppress(OSError):
                opened.append(connect(target.address))
                opened[-1].sendall(GET)
        while len(opened) > KEPT:
            opened.popleft().close()


def never_read(target: Target, stop: Event) -> None:
    """Asks for files again and again on 100 connections and takes none of the answers."""
    opened = [connect(target.address) for _ in range(100)]
    for connection in itertools.cycle(opened):
        if stop.wait(1 / len(opened)):
            return
        connection.settimeout(0)
        with contextlib.suppress(OSError):
            connection.send(PAGE * 10)


def event_streams(target: Target, stop: Event) -> None:
    """Follows a job on as many connections as an address may have."""
    head = f"GET /v1/jobs/{target.waiting_job}/events HTTP/1.1\r\nHost: localhost\r\n"
    opened = [connect(target.address) for _ in range(120)]
    for connection in opened:
        connection.sendall(f"{head}X-API-Key: {target.key}\r\n\r\n".encode())
    stop.wait()


def burst(clients: int, request_of: Callable[[Target, int], Request], pause: float = 0.0) -> Attack:
    """Some clients of one key that send a request as soon as the last one is answered."""

    def attack(target: Target, stop: Event) -> None:
        numbers = itertools.count()

        def send() -> None:
            with closing(http.client.HTTPConnection(*target.address, timeout=60)) as connection:
                while not stop.wait(pause):
                    method, path, body, headers = request_of(target, next(numbers))
                    key = {"X-API-Key": target.key}
                    with contextlib.suppress(OSError, http.client.HTTPException):
                        connection.request(method, path, body, headers | key)
                        connection.getresponse().read()

        threads = [threading.Thread(target=send) for _ in range(clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return attack


def thumbnail(target: Target, number: int) -> Request:
    """A thumbnail that was not made before, until there is one of each image in each size."""
    row, size = number % len(target.images), 16 + number // len(target.images)
    path = f"/v1/jobs/{target.job}/thumbnails/{target.images[row]}?size={size}"
    return "GET", path, b"", {}


def scoring(target: Target, _number: int) -> Request:
    """Photographs to be scored."""
    head = (
        b'--of-attack\r\nContent-Disposition: form-data; name="images"; filename="a.jpg"\r\n'
        b"Content-Type: image/jpeg\r\n\r\n"
    )
    body = b"".join(head + image + b"\r\n" for image in target.photographs) + b"--of-attack--\r\n"
    headers = {"Content-Type": "multipart/form-data; boundary=of-attack"}
    return "POST", f"/v1/gaussians/{target.job}/score", body, headers


def compressed_arrow() -> Callable[[Target, int], Request]:
    """A gigabyte of zeros as an Arrow stream of a few kilobytes."""
    values = pa.array(np.zeros(1 << 22, np.float32))
    table = pa.table({"features": pa.FixedSizeListArray.from_arrays(values, 64)})
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        for _ in range(64):
            writer.write_table(table)
    body = bytes(sink.getvalue())
    return lambda target, _number: ("POST", f"/v1/gaussians/{target.job}/score", body, ARROW)


def upload_dictionaries(target: Target, stop: Event) -> None:
    """Uploads Parquet in which 100,000 rows repeat an image of 16 MB, ten times a second."""
    rows = pa.DictionaryArray.from_arrays(np.zeros(100_000, np.int32), [bytes(16 << 20)])
    file = io.BytesIO()
    table = pa.table({"image": rows, "label": pa.array(["a"] * 100_000)})
    pq.write_table(table, file, compression="zstd")
    headers = {"X-API-Key": target.key, "Content-Type": "application/json"}
    with closing(http.client.HTTPConnection(*target.address, timeout=60)) as connection:
        while not stop.wait(0.1):
            connection.request("POST", "/v1/uploads", b'{"format": "parquet"}', headers)
            answer = connection.getresponse()
            answer.read()
            place = answer.headers["Location"]
            if place is not None:
                # The last part of an upload of unknown size, after which it is checked.
                path = f"{place}?complete=true"
                connection.request("PUT", path, file.getvalue(), headers)
                connection.getresponse().read()
