"""The worker's end of the process that runs its jobs: started, watched, and ended in any case."""

import queue
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext

import structlog

from api.jobs.failures import Failure
from api.jobs.queue import Progress
from api.jobs.stored_result import StoredResult
from api.settings import Settings
from api.worker.heartbeat import OutOfTime, RunningJob, Stopped, stopping_seconds
from api.worker.job_messages import STOP, Beat, Ending, Failed, Interrupted, Message, Succeeded
from api.worker.time_limits import SHOWN, overdue, time_limits
from difficulty_service.base.apart import Child
from difficulty_service.base.wording import list_names

TICK = 0.1  # seconds between two looks at cancellation and time limits

Messages = queue.SimpleQueue[Message | None]
"""What the process has sent; None at last, when it has ended."""


class AttemptFailed(Exception):
    """The attempt failed, and why."""

    def __init__(self, failure: Failure, traceback: str | None = None) -> None:
        super().__init__(failure.detail)
        self.failure = failure
        self.traceback = traceback


class JobInterrupted(Exception):
    """The database did not answer the process of the job; its message is the kind of the error."""


def _run_jobs(connections: Sequence[Connection], settings: Settings) -> None:
    # Imported here, because only that process needs torch.
    from api.worker.job_child import run_jobs

    run_jobs(connections, settings)


class JobProcess:
    """Runs jobs in a process that is kept from one job to the next, with its loaded backbone."""

    def __init__(self, settings: Settings, context: BaseContext | None = None) -> None:
        self._settings = settings
        self._context = context
        self._child: Child | None = None
        self._messages: Messages = queue.SimpleQueue()

    def start(self) -> Child:
        """Starts the process unless it runs, so that the next job need not wait for it."""
        if self._child is None or not self._child.is_usable:
            self._child = Child(_run_jobs, self._settings, context=self._context)
            self._messages = queue.SimpleQueue()
            # In a thread, since half a message may hang.
            arguments = (self._child.connections[0], self._messages)
            threading.Thread(target=_read, args=arguments, name="job-messages", daemon=True).start()
        return self._child

    @property
    def pid(self) -> int | None:
        """Id of the process; None where there is none."""
        return None if self._child is None else self._child.pid

    def run(self, running: RunningJob) -> StoredResult:
        """Runs a job; returns its result. Whatever the job does, it has ended afterwards.

        Raises `Stopped` where the job must stop, `AttemptFailed` where it failed, exceeded a limit
        or lost its process, and `JobInterrupted` where the database did not answer.
        """
        child = self.start()
        try:
            with suppress(OSError):  # where it has just died, the first message says so
                child.connections[0].send(running.job)
            ending = self._follow(child, running)
        except Stopped as stopped:
            last = self._stop(child, stopping_seconds(self._settings.grace, stopped))
            if isinstance(stopped, OutOfTime) and isinstance(last, Succeeded):
                return last.result
            raise
        if isinstance(ending, Succeeded):
            return ending.result
        if isinstance(ending, Failed):
            raise AttemptFailed(ending.failure, ending.traceback)
        raise JobInterrupted(ending.reason if isinstance(ending, Interrupted) else "Halted")

    def close(self) -> None:
        """Ends the process."""
        if self._child is not None:
            self._child.close()
            self._child = None

    def _follow(self, child: Child, running: RunningJob) -> Ending:
        """Waits for the ending of a job; kills one that exceeds a limit, not one that must stop."""
        limits = time_limits(self._settings, running.job.wanted.run.encoding)
        beat, heard = Beat(), time.monotonic()
        while True:
            try:
                message = self._next_message(TICK)
            except EOFError:
                child.finish()
                detail = f"the process that ran the job was ended {child.ending} while {beat.stage}"
                if beat.images:
                    names = [name for name, _ in beat.images]
                    detail += f"; it was reading {list_names(names, SHOWN)}"
                raise AttemptFailed(Failure("process-ended", detail, retry=True)) from None
            if isinstance(message, Ending):
                return message
            if isinstance(message, Beat):
                beat, heard = message, time.monotonic()
                running.answered = heard
            failure = overdue(beat, time.monotonic() - heard, limits, running.worked)
            if failure is not None:
                _kill(child)
                raise AttemptFailed(failure)
            if isinstance(message, Progress):
                running.check(message)
            else:
                running.require_continuing()

    def _stop(self, child: Child, patience: float) -> Ending | None:
        """Tells a job to stop, and kills it where it does not; its ending if it had one."""
        end = time.monotonic() + patience
        with suppress(OSError):
            child.connections[0].send(STOP)
        with suppress(EOFError):
            while (left := end - time.monotonic()) > 0:
                message = self._next_message(left)
                if isinstance(message, Ending):
                    return message
        structlog.get_logger().warning("job-process-killed", pid=child.pid)
        _kill(child)
        return None

    def _next_message(self, timeout: float) -> Message | None:
        """The next message; None if there is none in time, EOFError where the process has ended."""
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            return None
        if message is None:
            raise EOFError
        return message


def _read(connection: Connection, messages: Messages) -> None:
    """Passes messages on until the process ends; None at last."""
    # EOFError and OSError where it ends; anything else where a message was garbled.
    with suppress(Exception):
        while True:
            messages.put(connection.recv())
    messages.put(None)


def _kill(child: Child) -> None:
    if not child.kill():
        structlog.get_logger().error("job-process-not-killed", pid=child.pid)
