"""Processes that need not load what they run, because they are forked from one that has loaded it.

There are two of these. One has loaded torch and this project. The other has loaded only what a
process with a limit of memory does, against which all counts that it has from the start.

A process that was forked so starts its own children in the same way where its parent does.
"""

import gc
import os
from collections.abc import Sequence
from contextvars import ContextVar
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext, ForkServerProcess
from multiprocessing.popen_forkserver import Popen
from typing import Any, ClassVar

from difficulty_service.base import apart

_heavy: Any = forkserver._forkserver  # there is no public way
_light: Any = forkserver.ForkServer()
_chosen: ContextVar[Any] = ContextVar("chosen", default=_heavy)
forkserver.connect_to_new_process = lambda fds: _chosen.get().connect_to_new_process(fds)


class ForkedProcess(ForkServerProcess):
    """A process with the environment variables of the one that starts it, as any other has."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - of the base class
        super().__init__(*args, **options)
        self._environment = dict(os.environ)
        forks = isinstance(apart.context_of_children, ForkedContext)
        self._addresses = fork_server_addresses() if forks else None

    def run(self) -> None:
        # Else each full collection walks, and so copies, all that was loaded before the fork.
        gc.freeze()
        os.environ.clear()
        os.environ.update(self._environment)
        if self._addresses is not None:
            fork_children(self._addresses)
        super().run()


class LightPopen(Popen):
    """Has the process forked from the one that has loaded little."""

    def _launch(self, process_obj: Any) -> None:  # noqa: ANN401 - of the base class
        token = _chosen.set(_light)
        try:
            super()._launch(process_obj)  # type: ignore[misc]
        finally:
            _chosen.reset(token)


class LightProcess(ForkedProcess):
    """A process that has loaded little."""

    @staticmethod
    def _Popen(process_obj: Any) -> Popen:  # noqa: ANN401, N802 - of the base class
        return LightPopen(process_obj)


class ForkedContext(ForkServerContext):
    """Starts processes with the environment of the one that starts them."""

    Process: ClassVar[Any] = ForkedProcess


class LightContext(ForkedContext):
    """The same of processes that have loaded little."""

    Process = LightProcess


def preload(heavy: list[str], light: list[str]) -> None:
    """Names the modules that each of the two loads."""
    _heavy.set_forkserver_preload(heavy)
    _light.set_forkserver_preload(light)


def fork_server_addresses() -> tuple[str, str]:
    """Where the servers that fork for this process listen."""
    for server in (_heavy, _light):
        server.ensure_running()
    return _heavy._forkserver_address, _light._forkserver_address


def fork_children(addresses: Sequence[str]) -> None:
    """Has this process start its children by the servers at the addresses."""
    apart.context_of_children = ForkedContext()
    apart.context_of_limited = LightContext()
    for server, address in zip((_heavy, _light), addresses, strict=True):
        server._forkserver_address = address
        if server._forkserver_alive_fd is None:  # not forked by it, so it need not outlive this one
            _, server._forkserver_alive_fd = os.pipe()
        server.ensure_running = lambda: None
