"""Processes that need not load torch, because they are forked from one that has loaded it.

A process that was forked so starts its own children in the same way where its parent does.
"""

import gc
import os
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from typing import Any

from difficulty_service.base import apart

_server: Any = forkserver._forkserver  # there is no public way


class ForkedProcess(ForkServerProcess):
    """A process with the environment variables of the one that starts it, as any other has."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - of the base class
        super().__init__(*args, **options)
        self._environment = dict(os.environ)
        forks = isinstance(apart.context_of_children, ForkedContext)
        self._address = fork_server_address() if forks else None

    def run(self) -> None:
        # Else each full collection walks, and so copies, all that was loaded before the fork.
        gc.freeze()
        os.environ.clear()
        os.environ.update(self._environment)
        if self._address is not None:
            fork_children(self._address)
        super().run()


class ForkedContext(ForkServerContext):
    """Starts processes with the environment of the one that starts them."""

    Process = ForkedProcess


def fork_server_address() -> str:
    """Where the server that forks for this process listens."""
    _server.ensure_running()
    return str(_server._forkserver_address)


def fork_children(address: str) -> None:
    """Has this process start its children by the server at an address."""
    apart.context_of_children = ForkedContext()
    _server._forkserver_address = address
    if _server._forkserver_alive_fd is None:  # not forked by it, so it need not outlive this one
        _, _server._forkserver_alive_fd = os.pipe()
    _server.ensure_running = lambda: None
