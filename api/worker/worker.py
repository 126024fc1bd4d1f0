"""Claims jobs one after another and runs them; one process per device."""

import os
import random
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import Literal

import structlog
from sqlalchemy import Engine
from sqlalchemy.exc import InterfaceError, InternalError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from api.jobs.failures import describe_failure, public_names
from api.jobs.files import attempt_prefix, delete_other_attempts, delete_work
from api.jobs.queue import claim, fail, hand_back, succeed
from api.jobs.rows import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import DatabaseUnusable, connect, require_current
from api.worker.backbone_cache import keep_last
from api.worker.heartbeat import Cancelled, Heartbeat, LeaseLost, OutOfTime, Watched
from api.worker.job_runner import run_job
from api.worker.retention import sweep
from difficulty_service.backbones import Loader

TRANSIENT_ERRORS = (OperationalError, InterfaceError, InternalError, PoolTimeout)
"""Errors of a database that is down, full or busy; the same may succeed later."""

FIRST_DELAY, LONGEST_DELAY = 0.25, 5.0
LONGEST_SLEEP = 0.2
"""Seconds until an idle worker notices that it is told to stop."""

SETTLE_SECONDS = 600.0
"""How long the end of a job is tried to be written, before it is left to another attempt."""

SETTLE_SECONDS_WHEN_STOPPING = 5.0

SWEEP_SECONDS = 600.0
"""Between two removals of what nobody needs any more."""

Ending = Literal["succeeded", "failed", "to-be-repeated", "cancelled", "handed-back", "lost"]
"""How an attempt ended; `lost` to another one, or because the job is gone."""


@dataclass(frozen=True)
class Worker:
    """What a worker works with.

    Attributes:
        id: Names it in the database.
        settings: As of all workers and servers.
        engine: The database.
        artifacts: Where results go.
        load: Gives backbones.
        heartbeat: Keeps the present job.
        stop: Whether it has been told to stop.
    """

    id: str
    settings: Settings
    engine: Engine
    artifacts: Artifacts
    load: Loader
    heartbeat: Heartbeat
    stop: Callable[[], bool]


def run_worker(settings: Settings, is_done: Callable[[], bool] = lambda: False) -> None:
    """Works until SIGTERM or SIGINT, or until it is done; a second signal ends it at once."""
    stopping = threading.Event()

    def stop_or_exit(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            # Threads inside torch would keep an ordinary exit waiting.
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_or_exit)
    work(settings, lambda: stopping.is_set() or is_done())


def work(settings: Settings, stop: Callable[[], bool]) -> None:
    """Claims and runs jobs until told to stop.

    Args:
        settings: Where database, artifacts and datasets are, and how often to look for jobs.
        stop: Whether to claim no more; the present job may go on for `settings.grace` seconds.

    Raises:
        DatabaseUnusable: The database is of a kind that this program cannot work with.
    """
    worker_id = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
    engine = connect(settings.resolved_database_url.get_secret_value())
    worker = Worker(
        id=worker_id,
        settings=settings,
        engine=engine,
        artifacts=open_artifacts(settings.artifact_root),
        load=keep_last(),
        heartbeat=Heartbeat(engine, worker_id, settings, stop),
        stop=stop,
    )
    log = structlog.get_logger().bind(worker=worker_id)
    log.info("worker-started", device=settings.device)
    try:
        if _wait_for_tables(worker):
            with worker.heartbeat.running():
                _work_on(worker)
    finally:
        engine.dispose()
        log.info("worker-stopped")


def _wait_for_tables(worker: Worker) -> bool:
    """Waits until a server has made the tables; False where the worker is told to stop before."""
    delay = FIRST_DELAY
    while not worker.stop():
        try:
            require_current(worker.engine)
        except (DatabaseUnusable, *TRANSIENT_ERRORS) as error:
            reason = str(error) if isinstance(error, DatabaseUnusable) else type(error).__name__
            structlog.get_logger().warning("database-not-ready", worker=worker.id, reason=reason)
        else:
            return True
        time.sleep(delay)
        delay = min(LONGEST_DELAY, 2 * delay)
    return False


def _work_on(worker: Worker) -> None:
    next_sweep = time.monotonic() + SWEEP_SECONDS * random.random()  # noqa: S311 - no secret
    while not worker.stop():
        try:
            if time.monotonic() >= next_sweep:
                next_sweep = time.monotonic() + SWEEP_SECONDS  # also where this one fails
                sweep(worker.engine, worker.settings, worker.artifacts)
            job = claim(worker.engine, worker.id, worker.settings.device, worker.settings.lease)
            if job is not None:
                run_attempt(worker, job)
                continue
        except (*TRANSIENT_ERRORS, OSError) as error:
            structlog.get_logger().warning(
                "worker-interrupted", worker=worker.id, reason=type(error).__name__
            )
        _idle(worker)


def _idle(worker: Worker) -> None:
    # Not all at the same moment, or idle workers would stand in each other's way.
    end = time.monotonic() + worker.settings.poll * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
    while not worker.stop() and (left := end - time.monotonic()) > 0:
        time.sleep(min(left, LONGEST_SLEEP))


def run_attempt(worker: Worker, job: Job) -> None:
    """Runs a claimed job to an end that is in the database: one of its own, or of another worker.

    Raises:
        SQLAlchemyError: The database is away; the job is repeated when its lease is over, unless
            its end was written after all.
    """
    log = structlog.get_logger().bind(worker=worker.id, job=job.id, attempt=job.attempt)
    log.info("job-claimed")
    with worker.heartbeat.watching(job) as watched:
        try:
            ended = _run_and_publish(worker, watched)
        except OutOfTime:
            _settle(lambda: hand_back(worker.engine, job), watched)
            ended = "handed-back"
        except Cancelled:
            ended = "cancelled"
        except LeaseLost:
            ended = "lost"
        except TRANSIENT_ERRORS:
            raise
        except Exception as error:
            log.warning("attempt-failed", exc_info=error)
            ended = _write_failure(worker, watched, error)
    log.info("attempt-ended", how=ended)
    _clean_up(worker, job, ended)


def _run_and_publish(worker: Worker, watched: Watched) -> Ending:
    job = watched.job
    result = run_job(
        job, worker.settings, worker.engine, worker.artifacts, watched.check, worker.load
    )
    published = _settle(lambda: succeed(worker.engine, job, result), watched)
    return "succeeded" if published else "lost"


def _write_failure(worker: Worker, watched: Watched, error: Exception) -> Ending:
    job = watched.job
    failure = describe_failure(error, public_names(worker.settings))
    repeat = failure.retry and job.attempt < job.max_attempts
    delay = worker.settings.retry_delay * 2 ** (job.attempt - 1) if repeat else None
    written = _settle(lambda: fail(worker.engine, job, failure.body(), retry_in=delay), watched)
    if not written:
        return "lost"
    return "to-be-repeated" if repeat else "failed"


def _settle(write: Callable[[], bool], watched: Watched) -> bool:
    """Writes the end of an attempt, however long the database is away.

    Raises:
        SQLAlchemyError: It is away too long, or for good; nobody knows what was written.
    """
    began, delay = time.monotonic(), FIRST_DELAY
    while True:
        try:
            return write()
        except TRANSIENT_ERRORS:
            last = min(began + SETTLE_SECONDS, watched.deadline() + SETTLE_SECONDS_WHEN_STOPPING)
            if time.monotonic() >= last:
                raise
        time.sleep(delay)
        delay = min(LONGEST_DELAY, 2 * delay)


def _clean_up(worker: Worker, job: Job, ended: Ending) -> None:
    """Leaves the files that were published, and those that another attempt can go on with."""
    if ended == "succeeded":
        delete_other_attempts(worker.artifacts, job)
    else:
        worker.artifacts.delete_prefix(attempt_prefix(job))
    if ended in ("succeeded", "failed", "cancelled"):
        delete_work(worker.settings.work_dir, job.id)
