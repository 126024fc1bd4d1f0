"""A thread that keeps a worker and its job alive in the database while the job runs elsewhere.

The job asks `Watched.check` after every batch whether it may go on. That looks at what the thread
found out last and never at the database, so a database that is down stops no job: the thread goes
on trying, and whoever claims the job after its lease ran out is told apart by the attempt.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Literal

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.jobs.queue import Progress, cancelled, heartbeat
from api.jobs.rows import Job
from api.jobs.store import get_job
from api.settings import Settings
from api.storage.worker_registry import beat, forget

LONGEST_TICK = 1.0
"""Seconds until a wish to cancel is noticed."""

NOTHING_DONE = Progress(done=0, total=None, bad=0, rate=None)


class Stopped(Exception):
    """The job must not go on."""


class Cancelled(Stopped):
    """Its owner wants no more of it; the database knows already."""


class LeaseLost(Stopped):
    """Another worker has it."""


class OutOfTime(Stopped):
    """The worker was told to stop and its grace time is over."""


@dataclass
class Watched:
    """A job under way, as its own thread and the heartbeat's see it.

    Attributes:
        job: As claimed.
        deadline: Monotonic time after which the worker may not go on, infinite as long as nobody
            told it to stop.
        progress: How far it is.
        images: How many this attempt has worked through itself.
        verdict: What the database said last.
    """

    job: Job
    deadline: Callable[[], float]
    progress: Progress | None = None
    images: int = 0
    verdict: Literal["ok", "cancel", "lost"] = "ok"

    def check(self, progress: Progress) -> None:
        """Takes down how far the job is, and ends it where it may not go on.

        Raises:
            Stopped: It may not; which kind says why.
        """
        if self.progress is not None:
            self.images += progress.done - self.progress.done
        self.progress = progress
        if self.verdict == "cancel":
            raise Cancelled
        if self.verdict == "lost":
            raise LeaseLost
        if time.monotonic() >= self.deadline():
            raise OutOfTime


class Heartbeat:
    """Tells the database about a worker and its job.

    Args:
        engine: The database.
        worker_id: Of the worker.
        settings: Device, lease, heartbeat and grace.
        stop: Whether the worker has been told to stop.
    """

    def __init__(
        self, engine: Engine, worker_id: str, settings: Settings, stop: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._settings = settings
        self._stop = stop
        self._stopped_at: float | None = None
        self._watched: Watched | None = None
        self._images = 0
        self._ended = threading.Event()

    @contextmanager
    def running(self) -> Iterator[None]:
        """The thread runs inside; at the end the worker is no longer listed."""
        thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._try(lambda: forget(self._engine, self._worker_id))

    @contextmanager
    def watching(self, job: Job) -> Iterator[Watched]:
        """The job is kept inside."""
        watched = self._watched = Watched(job, self._deadline)
        try:
            yield watched
        finally:
            self._watched = None
            self._images += watched.images

    def _deadline(self) -> float:
        """When the grace time is over; infinite as long as nobody told the worker to stop."""
        if self._stopped_at is None:
            if not self._stop():
                return float("inf")
            self._stopped_at = time.monotonic()
        return self._stopped_at + self._settings.grace

    def _run(self) -> None:
        tick = min(LONGEST_TICK, self._settings.heartbeat)
        due, failures = 0.0, 0
        while not self._ended.is_set():
            self._deadline()  # the grace time begins now, however long the present batch takes
            if time.monotonic() >= due or self._cancel_requested():
                failures = 0 if self._try(self._beat) else failures + 1
                pause = min(self._settings.heartbeat, tick * 2**failures) if failures else None
                due = time.monotonic() + (pause or self._settings.heartbeat)
            self._ended.wait(tick)

    def _beat(self) -> None:
        watched = self._watched
        device = self._settings.device
        if watched is None:
            beat(self._engine, self._worker_id, device, None, self._images)
            return
        images = self._images + watched.images
        beat(self._engine, self._worker_id, device, watched.job.id, images)
        if watched.verdict != "ok":
            return
        progress = watched.progress or NOTHING_DONE
        answer = heartbeat(self._engine, watched.job, self._settings.lease, progress)
        if answer == "cancel":
            # Now and not when the job notices: fitting Gaussians may take it minutes.
            cancelled(self._engine, watched.job)
        watched.verdict = answer

    def _cancel_requested(self) -> bool:
        watched = self._watched
        if watched is None or watched.verdict != "ok":
            return False
        try:
            job = get_job(self._engine, None, watched.job.id)
        except SQLAlchemyError:
            return False  # the next heartbeat says so
        return job is None or job.cancel_requested or job.attempt != watched.job.attempt

    def _try(self, action: Callable[[], None]) -> bool:
        """Whether the database took it; a thread that died here would lose the job."""
        try:
            action()
        except SQLAlchemyError as error:
            # Without the statement's parameters, and without a URL that may hold a password.
            structlog.get_logger().warning(
                "heartbeat-failed", worker=self._worker_id, reason=type(error).__name__
            )
            return False
        return True
