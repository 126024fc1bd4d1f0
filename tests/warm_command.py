"""`difficulty` for scripts of tests, without the seconds in which each process loads torch.

A folder for the front of PATH holds a program of that name, which asks this process to do what the
installed command would: with the words, environment and folder of the caller, writing to the
caller's output, and with the same exit code.
"""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

PROGRAM = """#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as caller:
    caller.connect({address!r})
    request = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(),
               "output": f"/proc/{{os.getpid()}}/fd/1", "errors": f"/proc/{{os.getpid()}}/fd/2"}}
    caller.sendall(json.dumps(request).encode() + b"\\n")
    sys.exit(int(caller.makefile().readline() or 70))
"""


@dataclass(frozen=True)
class Call:
    """What a script has called; the output and the errors are files to append to."""

    words: list[str]
    environment: dict[str, str]
    folder: str
    output: str
    errors: str


@contextmanager
def warm_command(run: Callable[[Call], int | None]) -> Iterator[Path]:
    """Gives a folder for the front of PATH; `run` does what is called, and gives the exit code."""

    def answer(caller: socket.socket) -> None:
        with caller, caller.makefile("rw") as stream:
            stream.write(f"{run(Call(**json.loads(stream.readline())))}\n")

    def serve(server: socket.socket) -> None:
        while True:
            try:
                caller, _ = server.accept()
            except OSError:
                return  # the socket was shut down
            threading.Thread(target=answer, args=(caller,), daemon=True).start()

    # The address of a socket must be short, which paths of tests are not.
    with TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        address, program = f"{folder}/socket", Path(folder, "difficulty")
        program.write_text(PROGRAM.format(python=sys.executable, address=address))
        program.chmod(0o700)
        server.bind(address)
        server.listen()
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        yield Path(folder)
        server.shutdown(socket.SHUT_RDWR)
        thread.join()


def run_script(
    script: str, commands: Path, folder: Path, **environment: str
) -> "subprocess.CompletedProcess[str]":
    """Runs a script of bash in a folder, without a network and with `difficulty` of `commands`."""
    variables = {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "HF_HUB_OFFLINE": "1",  # the default network is then the built-in one
        "HF_HOME": str(folder / "hub"),
        "OMP_NUM_THREADS": "1",
    }
    return subprocess.run(  # noqa: S603 - our own pages
        ["bash", "-x", "-c", script],  # noqa: S607
        cwd=folder,
        env=os.environ | variables | environment,
        capture_output=True,
        text=True,
        check=False,
    )
