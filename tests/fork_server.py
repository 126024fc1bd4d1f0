"""Processes that need not load torch, because they are forked from one that has loaded it.

A process that was forked so starts its own children in the same way once it is told where.
"""

import gc
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

_server: Any = forkserver._forkserver  # there is no public way


class ForkedProcess(ForkServerProcess):
    """A process with the environment variables of the one that starts it, as any other has."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - of the base class
        super().__init__(*args, **options)
        self._environment = dict(os.environ)

    def run(self) -> None:
        # Else each full collection walks, and so copies, all that was loaded before the fork.
        gc.freeze()
        os.environ.clear()
        os.environ.update(self._environment)
        super().run()


class ForkedContext(ForkServerContext):
    """Starts processes with the environment of the one that starts them."""

    Process = ForkedProcess


def fork_server_address() -> str:
    """Where the server that forks for this process listens."""
    _server.ensure_running()
    return str(_server._forkserver_address)


def use_fork_server(address: str) -> None:
    """Has this process use a server; else it would start one of its own."""
    _server._forkserver_address = address
    if _server._forkserver_alive_fd is None:  # not forked by it, so it need not outlive this one
        _, _server._forkserver_alive_fd = os.pipe()
    _server.ensure_running = lambda: None
