"""The worker's end of the process that runs its jobs: started, watched, and ended in any case."""

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from typing import Any

import structlog

from api.jobs.failures import Failure
from api.jobs.queue import Progress
from api.settings import Settings
from api.worker.heartbeat import OutOfTime, RunningJob, Stopped, stopping_seconds
from api.worker.job_messages import (
    CLOSE,
    STOP,
    Beat,
    Ending,
    Failed,
    Interrupted,
    Succeeded,
)
from api.worker.time_limits import SHOWN, TimeLimits, overdue, time_limits
from difficulty_service.files.wording import list_names

TICK = 0.1  # seconds between two looks at cancellation and time limits
CLOSING_SECONDS = 2.0  # that an idle process has to end by itself
KILL_SECONDS = 5.0  # after which a process that cannot be killed is left to the kernel


class Silence(Enum):
    """That no message came."""

    SILENCE = "silence"


SILENCE = Silence.SILENCE


class AttemptFailed(Exception):
    """The attempt failed, and why."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.detail)
        self.failure = failure


class JobInterrupted(Exception):
    """The database did not answer the process of the job; its message is the kind of the error."""


def _run_jobs(settings: Settings, connection: Connection) -> None:
    # Imported here, because only that process needs torch.
    from api.worker.job_child import run_jobs

    run_jobs(settings, connection)


@dataclass(frozen=True)
class Child:
    """A running process.

    Attributes:
        process: The process, which leads a session and a process group.
        connection: Connection to it.
        messages: What it has sent; None at last, when it has ended.
        given_up: Set once it was killed, although the kernel may keep it for a while.
    """

    process: BaseProcess
    connection: Connection
    messages: "queue.SimpleQueue[Progress | Beat | Ending | None]" = field(
        default_factory=queue.SimpleQueue
    )
    given_up: threading.Event = field(default_factory=threading.Event)

    @property
    def is_usable(self) -> bool:
        """Whether it can run a job."""
        return self.process.is_alive() and not self.given_up.is_set()

    def read(self) -> None:
        """Reads messages until the process ends; in a thread, since half a message may hang."""
        # EOFError and OSError where it ends; anything else where a message was garbled.
        with suppress(Exception):
            while True:
                self.messages.put(self.connection.recv())
        self.messages.put(None)

    def next_message(self, timeout: float) -> "Progress | Beat | Ending | Silence | None":
        """The next message; SILENCE if there is none in time, None if the process has ended."""
        try:
            return self.messages.get(timeout=timeout)
        except queue.Empty:
            return SILENCE

    def kill(self) -> None:
        """Kills the process with all that it has started."""
        self.given_up.set()
        with suppress(ProcessLookupError):  # it ended, or had not made its group yet
            os.killpg(self.process.pid or 0, signal.SIGKILL)
        self.process.kill()
        self.process.join(KILL_SECONDS)
        if self.process.is_alive():  # it waits for a device or a network file system
            structlog.get_logger().error("job-process-not-killed", pid=self.process.pid)


class JobProcess:
    """Runs jobs in a process that is kept from one job to the next, with its loaded backbone.

    Args:
        settings: Settings of the worker.
        context: How the process is started. Not by a fork: threads of this process may hold locks.
    """

    def __init__(self, settings: Settings, context: BaseContext | None = None) -> None:
        self._settings = settings
        self._context = context or multiprocessing.get_context("spawn")
        self._child: Child | None = None

    def start(self) -> Child:
        """Starts the process unless it runs, so that the next job need not wait for it.

        Raises:
            OSError: The system has no room for a process.
        """
        if self._child is not None and self._child.is_usable:
            return self._child
        here, there = multiprocessing.Pipe()
        # mypy: only the concrete contexts declare `Process`.
        process = self._context.Process(target=_run_jobs, args=(self._settings, there))  # type: ignore[attr-defined]
        try:
            process.start()
        finally:
            there.close()
        self._child = Child(process, here)
        threading.Thread(target=self._child.read, name="job-messages", daemon=True).start()
        return self._child

    @property
    def pid(self) -> int | None:
        """Id of the process; None where there is none."""
        return None if self._child is None else self._child.process.pid

    def run(self, running: RunningJob) -> Mapping[str, Any]:
        """Runs a job; returns its result. Whatever the job does, it has ended afterwards.

        Raises:
            Stopped: The job must stop.
            AttemptFailed: The job failed, exceeded a time limit, or its process died.
            JobInterrupted: The database did not answer.
            OSError: The system has no room for a process.
        """
        child = self.start()
        try:
            with suppress(OSError):  # where it has just died, the first message says so
                child.connection.send(running.job)
            return _result_of(
                _follow(child, running, time_limits(self._settings, running.job.request))
            )
        except Stopped as stopped:
            ending = _stop(child, stopping_seconds(self._settings.grace, stopped))
            if isinstance(stopped, OutOfTime) and isinstance(ending, Succeeded):
                return ending.result
            raise

    def close(self) -> None:
        """Ends the process."""
        if self._child is None:
            return
        with suppress(OSError):
            self._child.connection.send(CLOSE)
        self._child.process.join(CLOSING_SECONDS)
        self._child.kill()
        self._child = None


def _follow(child: Child, running: RunningJob, limits: TimeLimits) -> Ending:
    """Waits for the ending of a job.

    Raises:
        Stopped: The job must stop; it still runs.
        AttemptFailed: It exceeded a limit and was killed, or its process died.
    """
    beat, heard = Beat(), time.monotonic()
    while True:
        message = child.next_message(TICK)
        if isinstance(message, Ending):
            return message
        if isinstance(message, Beat):
            beat, heard = message, time.monotonic()
            running.answered = heard
        failure = overdue(beat, time.monotonic() - heard, limits)
        if failure is not None or message is None:
            child.kill()
            raise AttemptFailed(failure or process_ended(child.process.exitcode, beat))
        if isinstance(message, Progress):
            running.check(message)
        else:
            running.require_continuing()


def _stop(child: Child, patience: float) -> Ending | None:
    """Tells a job to stop, and kills it where it does not in time; its ending, if it had one."""
    end = time.monotonic() + patience
    with suppress(OSError):
        child.connection.send(STOP)
    while (left := end - time.monotonic()) > 0:
        message = child.next_message(left)
        if isinstance(message, Ending):
            return message
        if message is None:
            break
    structlog.get_logger().warning("job-process-killed", pid=child.process.pid)
    child.kill()
    return None


def _result_of(ending: Ending) -> Mapping[str, Any]:
    if isinstance(ending, Succeeded):
        return ending.result
    if isinstance(ending, Failed):
        raise AttemptFailed(ending.failure)
    raise JobInterrupted(ending.reason if isinstance(ending, Interrupted) else "Halted")


def process_ended(exit_code: int | None, beat: Beat) -> Failure:
    """The failure of a job whose process died.

    Args:
        exit_code: Its exit code, negative for a signal; None if unknown.
        beat: What it was doing when it was last heard of.
    """
    how = f"with exit code {exit_code}"
    if exit_code is None or exit_code < 0:
        how = f"by signal {-(exit_code or 0)}"
    if exit_code == -signal.SIGKILL:
        how += ", perhaps for lack of memory,"
    detail = f"the process that ran the job was ended {how} while {beat.stage}"
    if beat.images:
        detail += f"; it was reading {list_names([name for name, _ in beat.images], SHOWN)}"
    return Failure("process-ended", detail, retry=True)
