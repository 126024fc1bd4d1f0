"""`difficulty` for scripts of tests, without the seconds in which each process loads torch.

A folder for the front of PATH holds a program of that name. It asks this process to fork one that
has loaded the project, which does what the installed command does: with the words, environment and
folder of the caller, writing to the caller's output, and with the same exit code.
"""

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path

PROGRAM = """#!{python} -IS
import json, os, socket, sys

with socket.socket(socket.AF_UNIX) as caller:
    caller.connect({address!r})
    request = {{"words": sys.argv[1:], "environment": dict(os.environ), "folder": os.getcwd(),
               "output": f"/proc/{{os.getpid()}}/fd/1", "errors": f"/proc/{{os.getpid()}}/fd/2"}}
    caller.sendall(json.dumps(request).encode() + b"\\n")
    sys.exit(int(caller.makefile().readline() or 70))
"""

Fork = Callable[..., BaseProcess]


@contextmanager
def warm_command(folder: Path, fork_command: Fork) -> Iterator[Path]:
    """Writes the program into a folder and answers it until the end; gives the folder."""
    address = folder / "socket"
    program = folder / "difficulty"
    program.write_text(PROGRAM.format(python=sys.executable, address=str(address)))
    program.chmod(0o755)

    def answer(caller: socket.socket) -> None:
        with caller, caller.makefile("rw") as stream:
            request = json.loads(stream.readline())
            process = fork_command(*request.pop("words"), **request)
            process.join()
            stream.write(f"{process.exitcode}\n")

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.fspath(address))
        server.listen()

        def serve() -> None:
            while True:
                try:
                    caller, _ = server.accept()
                except OSError:
                    return  # the socket was shut down
                threading.Thread(target=answer, args=(caller,), daemon=True).start()

        thread = threading.Thread(target=serve)
        thread.start()
        yield folder
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
