"""Calls of a function in processes of their own, whose imports and memory end with them."""

import ctypes
import multiprocessing
import operator
import os
import pickle
import queue
import resource
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from multiprocessing.util import Finalize
from pathlib import Path
from typing import Any, Generic, ParamSpec, TypeVar

from difficulty_service.base.errors import DifficultyError

PR_SET_PDEATHSIG = 1  # in sys/prctl.h
CLOSING_SECONDS = 2.0  # that an idle process has to end by itself
KILL_SECONDS = 5.0  # after which a process that cannot be killed is left to the kernel

NEW_INTERPRETER: BaseContext = multiprocessing.get_context("spawn")
"""Starts a process without anything that this one has. Never by a fork of this one, whose threads
may hold locks, for which a fork would wait."""

context_of_children = NEW_INTERPRETER
"""Starts processes that have no limit of memory."""

context_of_limited = NEW_INTERPRETER
"""Starts processes with a limit of memory, against which all counts that they have from then."""


@contextmanager
def without_main() -> Iterator[None]:
    """Has processes that start in the context not run the program of this one.

    A new interpreter runs it to find what belongs to it, and a script without
    `if __name__ == "__main__"` would start all over there. For processes that need nothing of it.
    """
    main = sys.modules["__main__"]
    hidden = {name: main.__dict__.pop(name) for name in ("__file__",) if name in main.__dict__}
    spec, main.__spec__ = main.__spec__, None
    try:
        yield
    finally:
        main.__spec__ = spec
        main.__dict__.update(hidden)


def start_process(
    target: Callable[..., None], *arguments: object, context: BaseContext | None = None
) -> BaseProcess:
    """Starts a process by a context; None for `context_of_children`."""
    # mypy: only the concrete contexts declare `Process`.
    process: BaseProcess = (context or context_of_children).Process(  # type: ignore[attr-defined]
        target=target, args=arguments
    )
    process.start()
    return process


class Child:
    """A running process and the connections to it.

    It leads a session and a process group, so that signals to those of its parent do not reach it
    and all that it starts ends with it. It is killed when its parent has ended, or has dropped this
    object. Nothing here imports a heavy package.

    Args:
        serve: Function that the process runs, with its ends of the connections as the first
            argument. An empty message or the end of the first connection asks it to return.
        max_memory: Bytes of data above which allocations fail; on Linux only, as no other system
            has such a limit.
        context: How the process is started; None for `context_of_children`, or for
            `context_of_limited` where it has a limit.

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
        given = (serve, ends, arguments, max_memory, watched)
        if context is None and max_memory is not None:
            context = context_of_limited
        try:
            self._process = start_process(_run, *given, context=context)
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


def signal_after_parent(number: int, to: int | None = None) -> None:
    """Starts a thread that sends a signal once the parent process has ended.

    A parent that is killed cannot tell its children to stop.

    Args:
        number: The signal.
        to: Process to send it to, as for `os.kill`: 0 for the group of this one. None for this one.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def wait() -> None:
        parent.join()
        os.kill(os.getpid() if to is None else to, number)

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
    signal_after_parent(signal.SIGKILL, to=0)
    serve(connections, *arguments)


def _kill(process: BaseProcess) -> None:
    with suppress(ProcessLookupError):  # all has ended, or it has not made its group yet
        os.killpg(process.pid or 0, signal.SIGKILL)
    process.kill()
    process.join(KILL_SECONDS)


P = ParamSpec("P")
Result = TypeVar("Result")


class ProcessEnded(Exception):
    """The process ended while it was called; the message says how."""


class TookTooLong(ProcessEnded):
    """The process was killed, because the call took too long."""


@dataclass(frozen=True)
class Limits:
    """Limits of each process.

    Attributes:
        memory: Bytes of data above which allocations fail, on Linux; None for no limit.
        kept_memory: Bytes in memory above which a process is replaced after a call; None for any.
    """

    memory: int | None = None
    kept_memory: int | None = None


@dataclass
class _AnswerPlace:
    """Place of a process, which starts when it is first needed and again once it has ended."""

    start: Callable[[], Child]
    child: Child | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)

    def running(self) -> Child:
        with self.lock:
            if self.child is None or not self.child.is_usable:
                self.child = self.start()
            return self.child


class Apart(Generic[P, Result]):
    """A function that runs in processes of their own.

    A process starts when it is first needed and is replaced once it has ended. Of several, the one
    used last comes first, so that one is enough for a call at a time.

    Args:
        make: Called once in each process; gives the function. Pickled, so a module's function.
        threads: Number of calls that each process answers at once, each in a thread of its own.
    """

    def __init__(
        self,
        make: Callable[[], Callable[P, Result]],
        *,
        processes: int = 1,
        threads: int = 1,
        limits: Limits = Limits(),
    ) -> None:
        start = partial(
            Child,
            *(_serve, make, limits),
            connections=threads,
            max_memory=limits.memory,
        )
        self._places = [_AnswerPlace(start) for _ in range(processes)]
        self._calls = processes * threads
        self._idle: queue.LifoQueue[tuple[_AnswerPlace, int]] = queue.LifoQueue()
        for place in self._places:
            for connection in range(threads):
                self._idle.put((place, connection))

    def call(self, *args: P.args, **kwargs: P.kwargs) -> Result:
        """Calls the function; arguments, result and errors are pickled."""
        return self.call_within(None, *args, **kwargs)

    def call_within(self, seconds: float | None, *args: P.args, **kwargs: P.kwargs) -> Result:
        """Calls the function; after some seconds its process is killed. None for any time.

        Raises:
            TookTooLong: The process was killed.
            ProcessEnded, Exception: As for `call`.
        """
        place, connection = idle = self._idle.get()
        try:
            child = place.running()
            return _ask(child, child.connections[connection], (args, kwargs), seconds)
        finally:
            self._idle.put(idle)

    def close(self) -> None:
        """Ends all processes, once they are idle."""
        idle = [self._idle.get() for _ in range(self._calls)]
        for place in self._places:
            if place.child is not None:
                place.child.close()
        for each in idle:
            self._idle.put(each)


def call_apart(function: Callable[P, Result], *args: P.args, **kwargs: P.kwargs) -> Result:
    """Calls a function in a new process; function, arguments, result and errors are pickled."""
    apart: Apart[..., Result] = Apart(_any_function)
    try:
        return apart.call(function, *args, **kwargs)
    except ProcessEnded as error:
        raise DifficultyError(f"the process for {function.__name__} was ended {error}") from error
    finally:
        apart.close()


def _any_function() -> Callable[..., Result]:
    return operator.call


def _ask(child: Child, connection: Connection, request: object, seconds: float | None) -> Any:  # noqa: ANN401 - whatever the function gives
    """The answer of a process, which is killed where it breaks off."""
    with _killed_after(seconds, child) as killed:
        try:
            connection.send(request)
            succeeded, answer, goes_on = connection.recv()
        except (EOFError, OSError) as error:
            child.finish()
            if killed.is_set():
                raise TookTooLong(f"after {seconds:g} s") from None
            raise ProcessEnded(child.ending) from error
        except BaseException:
            child.kill()  # its answer would be taken for that of the next request
            raise
    if not goes_on:
        child.kill()
    if not succeeded:
        raise answer
    return answer


@contextmanager
def _killed_after(seconds: float | None, child: Child) -> Iterator[threading.Event]:
    """Kills a process that is still at work after some time; whether it did."""
    killed = threading.Event()
    if seconds is None:
        yield killed
        return

    def kill() -> None:
        killed.set()
        child.kill()

    timer = threading.Timer(seconds, kill)
    timer.daemon = True
    timer.start()
    try:
        yield killed
    finally:
        timer.cancel()


def _serve(
    connections: Sequence[Connection], make: Callable[[], Callable[..., object]], limits: Limits
) -> None:
    """Answers what arrives on each connection in a thread of its own."""
    function = make()
    first, *others = connections
    for each in others:
        arguments = (each, function, limits)
        threading.Thread(target=_answer_all, args=arguments, daemon=True).start()
    _answer_all(first, function, limits)


def _answer_all(connection: Connection, function: Callable[..., object], limits: Limits) -> None:
    # Closed at any end: the parent would wait for a thread that is no more.
    with connection, suppress(EOFError, OSError):  # the parent has ended, or wants this to end
        while True:
            args, kwargs = connection.recv()
            reply = _answer(partial(function, *args, **kwargs), limits)
            del args, kwargs
            connection.send_bytes(reply)


def _answer(call: Callable[[], object], limits: Limits) -> bytes:
    """The pickled result of a call or its error, and whether this process continues."""
    try:
        answer = call()
        goes_on = limits.kept_memory is None or memory_in_use() <= limits.kept_memory
        return pickle.dumps((True, answer, goes_on))
    except Exception as error:  # noqa: BLE001 - every error goes to the caller
        return pickle.dumps((False, _portable(error), True))


def _portable(error: Exception) -> Exception:
    """The error, or one of its name and message where it cannot be pickled."""
    if not isinstance(error, DifficultyError):
        error.add_note(traceback.format_exc())
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 - made on this line
    except Exception:  # noqa: BLE001 - whatever its class does
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def memory_in_use() -> int:
    """Bytes of this process in memory; at their peak where the system does not say."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
    return pages * resource.getpagesize()
