"""A server and its workers, as processes that are killed, paused and replaced."""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import BaseContext, ForkServerContext, SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from api.server import run_server
from api.settings import Settings
from api.worker.worker import run_worker
from tests import small_network
from tests.fork_server import ForkedContext, ForkedProcess


@dataclass(frozen=True)
class Noted:
    """A process, which is not another one that has got its id later.

    Attributes:
        pid: Its id.
        started: Its `starting_time`.
    """

    pid: int
    started: int

    def exists(self) -> bool:
        """Whether it has not ended."""
        return self.started > 0 and starting_time(self.pid) == self.started


class NewProcess(SpawnProcess):
    """A process that begins with nothing, as for users, but knows the networks of tests."""

    def run(self) -> None:
        small_network.make_known()
        super().run()


class NewInterpreters(SpawnContext):
    """Starts processes as users have them."""

    Process = NewProcess


class Noting(BaseProcess):
    """A process that is added to a file as soon as it has started.

    Args:
        file: The file; each line has an id and the time that tells it from later processes.
        options: As for any other process.
    """

    def __init__(self, file: Path, **options: Any) -> None:  # noqa: ANN401 - of the base class
        super().__init__(**options)
        self._file = file

    def start(self) -> None:
        super().start()
        with self._file.open("a") as file:
            file.write(f"{self.pid} {starting_time(self.pid or 0)}\n")


class NotedForkedProcess(Noting, ForkedProcess):
    """Both."""


class NotedNewProcess(Noting, NewProcess):
    """Both."""


def run_noted_worker(settings: Settings, notes: Path, *, forks: bool) -> None:
    """Runs a worker whose processes of jobs are noted, and started as the worker itself was."""
    context: Any = ForkServerContext() if forks else SpawnContext()
    kind = NotedForkedProcess if forks else NotedNewProcess
    context.Process = partial(kind, notes / str(os.getpid()))
    run_worker(settings, context=context)


class Service:
    """One server and some workers.

    Args:
        settings: Settings of the server and of every worker.
        context: Starts the processes, and those of the jobs in the same way.
        notes: Folder for the ids of the processes that run jobs, in one file per worker.
    """

    def __init__(self, settings: Settings, context: BaseContext, notes: Path) -> None:
        self._settings = settings
        self._context = context
        self._notes = notes
        self._server = self._start(run_server, settings, 0)
        self._workers: list[BaseProcess] = []
        self._paused: set[int] = set()
        self._pauses: list[threading.Timer] = []

    @property
    def server(self) -> int:
        """Process id of the server."""
        return self._server.pid or 0

    @property
    def workers(self) -> list[int]:
        """Process ids of all workers that are not paused, nor the processes of their jobs."""
        pids = [worker.pid or 0 for worker in self._workers]
        return [pid for pid in pids if self._paused.isdisjoint({pid, self.job_process(pid)})]

    def job_process(self, worker: int) -> int:
        """Id of the process that runs the jobs of a worker; 0 while there is none."""
        process = self._noted(worker)[-1:]
        return process[0].pid if process and process[0].exists() else 0

    def add_workers(self, number: int) -> None:
        self._workers += [self._start_worker() for _ in range(number)]

    def replace_worker(self, pid: int) -> None:
        """Kills a worker and starts another one."""
        index = [worker.pid for worker in self._workers].index(pid)
        self._workers[index].kill()
        self._workers[index].join()
        self._workers[index] = self._start_worker()

    def replace_server(self) -> None:
        """Kills the server and starts another one."""
        self._server.kill()
        self._server.join()
        self._server = self._start(run_server, self._settings, 0)

    def pause(self, seconds: float, *pids: int) -> None:
        """Stops processes at once; they wake up after some seconds."""
        for pid in pids:
            send(pid, signal.SIGSTOP)
        self._paused.update(pids)
        pause = threading.Timer(seconds, self._wake_up, pids)
        self._pauses.append(pause)
        pause.start()

    def wait_for_pauses(self) -> None:
        """Waits until every paused process has woken up."""
        while self._pauses:
            self._pauses.pop().join()

    def unexpected(self) -> list[str]:
        """Processes that have ended by themselves, or that run on without their worker."""
        alive = {worker.pid for worker in self._workers if worker.is_alive()}
        found = [f"a worker {worker.exitcode}" for worker in self._workers if not worker.is_alive()]
        if not self._server.is_alive():
            found.append(f"the server {self._server.exitcode}")
        for file in self._notes.iterdir():
            processes = self._noted(int(file.name))
            ended = processes[:-1] if int(file.name) in alive else processes
            left = [process.pid for process in ended if process.exists()]
            found += [f"job process {pid} of worker {file.name}" for pid in left]
        return found

    def close(self) -> None:
        """Ends all processes."""
        self.wait_for_pauses()
        for process in (*self._workers, self._server):
            process.terminate()
        for process in (*self._workers, self._server):
            process.join()

    def _noted(self, worker: int) -> list[Noted]:
        file = self._notes / str(worker)
        lines = file.read_text().splitlines() if file.exists() else []
        return [Noted(*map(int, line.split())) for line in lines]

    def _wake_up(self, *pids: int) -> None:
        for pid in pids:
            send(pid, signal.SIGCONT)
        self._paused.difference_update(pids)

    def _start_worker(self) -> BaseProcess:
        run = partial(run_noted_worker, forks=isinstance(self._context, ForkedContext))
        return self._start(run, self._settings, self._notes)

    def _start(self, target: Callable[..., None], *arguments: object) -> BaseProcess:
        # mypy: only the concrete contexts declare `Process`.
        process: BaseProcess = self._context.Process(  # type: ignore[attr-defined]
            target=target, args=arguments
        )
        process.start()
        return process


def send(pid: int, number: signal.Signals) -> None:
    """Sends a signal to a process, unless it has ended or is not known yet."""
    if pid:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def starting_time(pid: int) -> int:
    """When a process was started, in ticks since the machine was; 0 where it has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[19])
