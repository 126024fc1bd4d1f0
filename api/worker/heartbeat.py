"""A thread that sends the heartbeats of a worker and of its job while another thread follows it.

The worker keeps calling `RunningJob.check`, which reads the last answer that the thread got and
never the database. So a database that is down stops no job: the thread keeps retrying, and if
another worker claims the job after the lease has expired, the attempt tells the two apart.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from api.jobs.queue import Progress, cancelled, heartbeat, record_heartbeat, remove_worker
from api.jobs.store import Job, get_job
from api.settings import Settings

MAX_TICK = 1.0  # maximum number of seconds until a cancellation is noticed
PATIENCE = 5.0  # seconds that a job has to stop by itself before its process is killed


class Stopped(Exception):
    """The job must stop."""


class Cancelled(Stopped):
    """The owner has cancelled the job; the database has recorded it already."""


class LeaseLost(Stopped):
    """Another worker has claimed the job."""


class OutOfTime(Stopped):
    """The worker was told to stop and its grace period is as good as over."""


def stopping_seconds(grace: float, stopped: Stopped | None = None) -> float:
    """Seconds that a job has to stop by itself: at the end of the grace period a part of it."""
    at_the_end = stopped is None or isinstance(stopped, OutOfTime)
    return min(PATIENCE, grace / 4) if at_the_end else PATIENCE


@dataclass
class RunningJob:
    """The state that the thread that follows a job shares with that of the heartbeat."""

    job: Job  # as it was claimed
    deadline: Callable[[], float]  # monotonic time at which to stop; infinite unless told to
    progress: Progress | None = None  # None until the first batch
    images: int = 0  # processed by this attempt itself
    answer: Literal["ok", "cancel", "lost"] = "ok"  # to the last heartbeat
    answered: float = field(default_factory=time.monotonic)  # when its process was last heard of
    began: float = field(default_factory=time.monotonic)  # monotonic time of its claim
    told_of_download: bool = False  # whether the last heartbeat told of one

    @property
    def worked(self) -> float:
        """Seconds of work on the job in all its attempts."""
        return self.job.seconds + time.monotonic() - self.began

    def check(self, progress: Progress) -> None:
        """Records the progress of the job; raises `Stopped` where it must not continue."""
        if self.progress is not None:
            self.images += progress.done - self.progress.done
        self.progress = progress
        self.require_continuing()

    def require_continuing(self) -> None:
        """Raises the kind of `Stopped` that says why the job must not continue, if it must not."""
        if self.answer == "cancel":
            raise Cancelled
        if self.answer == "lost":
            raise LeaseLost
        if time.monotonic() >= self.deadline():
            raise OutOfTime


class Heartbeat:
    """Sends the heartbeats of a worker and of its job to the database."""

    def __init__(
        self, engine: Engine, worker_id: str, settings: Settings, stop: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._worker_id = worker_id
        self._settings = settings
        self._stop = stop
        self._stopped_at: float | None = None
        self._running_job: RunningJob | None = None
        self._images = 0
        self._ended = threading.Event()

    @contextmanager
    def started(self) -> Iterator[None]:
        """Runs the thread within the context; at its end the worker is removed."""
        thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self._try(lambda: remove_worker(self._engine, self._worker_id))

    @contextmanager
    def track(self, job: Job) -> Iterator[RunningJob]:
        """Renews the lease of a job within the context."""
        running = self._running_job = RunningJob(job, self._deadline)
        try:
            yield running
        finally:
            self._running_job = None
            self._images += running.images

    def _deadline(self) -> float:
        """Monotonic time to stop the job, shortly before the end of the grace period.

        Infinite unless the worker was told to stop.
        """
        if self._stopped_at is None:
            if not self._stop():
                return float("inf")
            self._stopped_at = time.monotonic()
        return self._stopped_at + self._settings.grace - stopping_seconds(self._settings.grace)

    def _run(self) -> None:
        tick = min(MAX_TICK, self._settings.heartbeat)
        due, failures = 0.0, 0
        while not self._ended.is_set():
            self._deadline()  # the grace period begins now, however long the current batch takes
            is_due = time.monotonic() >= due or self._download_changed()
            if is_due or self._cancel_requested():
                failures = 0 if self._try(self._beat) else failures + 1
                pause = min(self._settings.heartbeat, tick * 2**failures) if failures else None
                due = time.monotonic() + (pause or self._settings.heartbeat)
            self._ended.wait(tick)

    def _beat(self) -> None:
        running = self._running_job
        device = self._settings.device
        if running is None:
            record_heartbeat(self._engine, self._worker_id, device, None, self._images)
            return
        images = self._images + running.images
        # The lease is renewed all the same: this worker ends the job once a time limit is exceeded.
        if time.monotonic() - running.answered < self._settings.lease:
            record_heartbeat(self._engine, self._worker_id, device, running.job.id, images)
        if running.answer != "ok":
            return
        progress = running.progress or Progress()
        lease = self._settings.lease
        answer = heartbeat(self._engine, running.job, lease, progress, running.worked)
        if answer == "cancel":
            # Not only when the job notices: it may be fitting Gaussians for minutes.
            cancelled(self._engine, running.job)
        running.answer = answer
        running.told_of_download = progress.download is not None

    def _download_changed(self) -> bool:
        """Whether a download has begun or ended since the last heartbeat, which is told soon."""
        running = self._running_job
        if running is None or running.answer != "ok":
            return False
        progress = running.progress or Progress()
        return (progress.download is not None) != running.told_of_download

    def _cancel_requested(self) -> bool:
        running = self._running_job
        if running is None or running.answer != "ok":
            return False
        try:
            job = get_job(self._engine, None, running.job.id)
        except SQLAlchemyError:
            return False  # the next heartbeat says so
        return job is None or job.cancel_requested or job.attempt != running.job.attempt

    def _try(self, action: Callable[[], None]) -> bool:
        """Whether an action succeeded; an error must not end the thread and lose the job."""
        try:
            action()
        except SQLAlchemyError as error:
            # Without the statement's parameters, and without a URL that may hold a password.
            structlog.get_logger().warning(
                "heartbeat-failed", worker=self._worker_id, reason=type(error).__name__
            )
            return False
        return True
