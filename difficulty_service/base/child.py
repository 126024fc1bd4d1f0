"""A child process that ends with its parent, whichever way either of them ends."""

import ctypes
import multiprocessing
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize

PR_SET_PDEATHSIG = 1  # in sys/prctl.h
CLOSING_SECONDS = 2.0  # that an idle process has to end by itself
KILL_SECONDS = 5.0  # after which a process that cannot be killed is left to the kernel


class Child:
    """A running process and the connections to it.

    It leads a session and a process group, so that signals to those of its parent do not reach it
    and all that it starts ends with it. It is killed when its parent has ended, or has dropped this
    object. Nothing here imports a heavy package.

    Args:
        serve: Function that the process runs, with its ends of the connections as the first
            argument. An empty message or the end of the first connection asks it to return.
        arguments: The others.
        connections: Number of connections.
        max_memory: Bytes of data above which allocations fail; on Linux only, as no other system
            has such a limit.
        context: How the process is started, by default as a new interpreter. Never by a fork:
            threads of this process may hold locks, for which a fork would wait.

    Raises:
        OSError: The system has no room for a process.
    """

    def __init__(
        self,
        serve: Callable[..., None],
        *arguments: object,
        connections: int = 1,
        max_memory: int | None = None,
        context: BaseContext | None = None,
    ) -> None:
        pipes = [multiprocessing.Pipe() for _ in range(connections)]
        self.connections = [ours for ours, _ in pipes]
        ends = [theirs for _, theirs in pipes]
        # A thread may end while its process goes on, and the kernel watches a thread only.
        watched = threading.current_thread() is threading.main_thread()
        context = context or multiprocessing.get_context("spawn")
        # mypy: only the concrete contexts declare `Process`.
        self._process: BaseProcess = context.Process(  # type: ignore[attr-defined]
            target=_run, args=(serve, ends, arguments, max_memory, watched)
        )
        try:
            self._process.start()
        finally:
            for end in ends:
                end.close()  # otherwise the end of the process would not be noticed here
        self._kill = Finalize(self, _kill, (self._process,), exitpriority=0)

    @property
    def pid(self) -> int:
        """Id of the process."""
        return self._process.pid or 0

    @property
    def is_usable(self) -> bool:
        """Whether the process runs and was not killed; the kernel may keep a killed one."""
        return self._kill.still_active() and self._process.is_alive()

    @property
    def ending(self) -> str:
        """How a process that was killed has ended: "by signal 6", "with exit code 1"."""
        code = self._process.exitcode
        if code is not None and code >= 0:
            return f"with exit code {code}"
        reason = " (perhaps for lack of memory)" if code == -signal.SIGKILL else ""
        return f"by signal {-(code or 0)}{reason}"

    def kill(self) -> bool:
        """Kills the process with all that it has started; whether it has ended.

        A process that waits for a device or a network file system ends later.
        """
        self._kill()
        return not self._process.is_alive()

    def close(self) -> None:
        """Ends the process, which must be idle."""
        with suppress(OSError):
            self.connections[0].send_bytes(b"")
        self.finish()

    def finish(self) -> bool:
        """Waits a moment for a process that is ending, then kills it; whether it has ended.

        A process that fails closes its connections before it has an exit code.
        """
        self._process.join(CLOSING_SECONDS)
        return self.kill()


def call_after_parent(action: Callable[[], None]) -> None:
    """Starts a thread that calls an action once the parent process has ended.

    A parent that is killed cannot tell its children to stop.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        action()

    threading.Thread(target=wait, name="parent-watcher", daemon=True).start()


def _run(
    serve: Callable[..., None],
    connections: Sequence[Connection],
    arguments: Sequence[object],
    max_memory: int | None,
    watched: bool,  # noqa: FBT001 - a process takes positional arguments
) -> None:
    os.setsid()
    # Service managers signal all processes; the parent ends this one in its time. Not ignored but
    # handled, since programs that this one starts would inherit the former.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: None)
    if sys.platform == "linux":
        if watched:
            # Unlike the thread below, this works while the process can run no Python code.
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if max_memory is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (max_memory, max_memory))
    call_after_parent(lambda: os.killpg(0, signal.SIGKILL))
    serve(connections, *arguments)


def _kill(process: BaseProcess) -> None:
    with suppress(ProcessLookupError):  # all has ended, or it has not made its group yet
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join(KILL_SECONDS)
