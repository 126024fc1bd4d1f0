"""Servers of programs: started, asked once they answer, and stopped."""

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import requests

SECONDS, TIMEOUT = 300, 60


def free_port() -> int:
    """A port of this machine that nobody listens to."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def stopping(
    command: Sequence[object], folder: Path, variables: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[bytes]"]:
    """A server that is stopped at the end; a folder has what it says, and is its home."""
    with (folder / "server.txt").open("w") as log:
        process = subprocess.Popen(  # noqa: S603 - our own words
            list(map(str, command)),
            env={**os.environ, "HOME": str(folder), **(variables or {})},
            stdout=log,
            stderr=log,
            cwd=folder,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def answering(address: str, process: "subprocess.Popen[bytes]") -> requests.Response:
    """The first answer of a server; TimeoutError where it gives none."""
    until = time.monotonic() + SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            answer = requests.get(address, timeout=TIMEOUT)
        except requests.ConnectionError:
            time.sleep(1)
            continue
        if answer.ok:
            return answer
    raise TimeoutError("the server does not answer")
