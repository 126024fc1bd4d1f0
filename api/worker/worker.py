"""The worker: claims jobs one after another and runs them; one process per device."""

import os
import random
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.context import BaseContext
from types import FrameType
from typing import Literal

import structlog
from sqlalchemy import Engine

from api.http.public_text import public_names
from api.jobs.failures import Failure, describe_failure
from api.jobs.files import attempt_prefix, delete_other_attempts, delete_work
from api.jobs.queue import claim, fail, hand_back, succeed
from api.jobs.store import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import (
    TRANSIENT_ERRORS,
    DatabaseUnusable,
    connect,
    naming_damage,
    require_current,
)
from api.storage.identity import require_own_artifacts
from api.storage.space import has_space
from api.worker.heartbeat import Cancelled, Heartbeat, LeaseLost, OutOfTime, RunningJob
from api.worker.job_process import AttemptFailed, JobInterrupted, JobProcess
from api.worker.retention import delete_expired
from difficulty_service.base.contract import given
from difficulty_service.base.errors import DeviceError

FIRST_DELAY, MAX_DELAY = 0.25, 5.0
MAX_SLEEP = 0.2  # maximum number of seconds until an idle worker notices that it was told to stop
MAX_RECORD_SECONDS = 600.0
"""How long a worker tries to record the end of a job before it leaves it to another attempt."""

STOPPING_RECORD_SECONDS = 5.0

CLEAN_UP_SECONDS = 600.0  # seconds between two deletions of expired jobs and uploads

Ending = Literal["succeeded", "failed", "to-be-retried", "cancelled", "handed-back", "lost"]
"""How an attempt ended; `lost` to another one, or because the job is gone."""


@dataclass(frozen=True)
class Worker:
    """A worker with everything it needs."""

    id: str
    settings: Settings
    engine: Engine
    artifacts: Artifacts
    jobs: JobProcess
    heartbeat: Heartbeat
    stop: Callable[[], bool]


def run_worker(
    settings: Settings,
    is_done: Callable[[], bool] = lambda: False,
    context: BaseContext | None = None,
) -> None:
    """Runs jobs until SIGTERM or SIGINT, or until it is done; a second signal exits at once."""
    stopping = threading.Event()

    def stop_or_exit(number: int, _frame: FrameType | None) -> None:
        if stopping.is_set():
            # An ordinary exit would wait for threads inside torch.
            os._exit(128 + number)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop_or_exit)
    work(settings, lambda: stopping.is_set() or is_done(), context)


def work(settings: Settings, stop: Callable[[], bool], context: BaseContext | None = None) -> None:
    """Claims and runs jobs until told to stop, from when the current one has `grace` seconds."""
    worker_id = f"{socket.gethostname()[:60]}-{os.getpid()}-{secrets.token_hex(4)}"
    engine = connect(settings.resolved_database_url.get_secret_value())
    worker = Worker(
        id=worker_id,
        settings=settings,
        engine=engine,
        artifacts=open_artifacts(settings.artifact_root),
        jobs=JobProcess(settings, context),
        heartbeat=Heartbeat(engine, worker_id, settings, stop),
        stop=stop,
    )
    log = structlog.get_logger().bind(worker=worker_id)
    log.info("worker-started", device=settings.device)
    try:
        worker.jobs.start()
        with naming_damage(engine):
            if _wait_for_database(worker):
                with worker.heartbeat.started():
                    _work_on(worker)
    finally:
        worker.jobs.close()
        engine.dispose()
        log.info("worker-stopped")


def _wait_for_database(worker: Worker) -> bool:
    """Waits until a server has created the tables; False if the worker was told to stop before.

    Raises:
        ArtifactsOfAnother: The artifacts belong to another database.
    """
    delay = FIRST_DELAY
    while not worker.stop():
        try:
            require_current(worker.engine)
            require_own_artifacts(worker.engine, worker.artifacts)
        except (DatabaseUnusable, *TRANSIENT_ERRORS) as error:
            reason = str(error) if isinstance(error, DatabaseUnusable) else type(error).__name__
            structlog.get_logger().warning("database-not-ready", worker=worker.id, reason=reason)
        else:
            return True
        time.sleep(delay)
        delay = min(MAX_DELAY, 2 * delay)
    return False


def _work_on(worker: Worker) -> None:
    next_clean_up = time.monotonic() + CLEAN_UP_SECONDS * random.random()  # noqa: S311 - no secret
    is_full = False
    while not worker.stop():
        try:
            if time.monotonic() >= next_clean_up:
                next_clean_up = time.monotonic() + CLEAN_UP_SECONDS  # even if this one fails
                delete_expired(worker.engine, worker.settings, worker.artifacts)
            is_full = _disk_is_full(worker, is_full)
            job = None if is_full else _claim(worker)
            if job is not None:
                run_attempt(worker, job)
                if not worker.stop():
                    worker.jobs.start()  # another one, where that of the job had to be killed
                continue
        except (*TRANSIENT_ERRORS, OSError, JobInterrupted) as error:
            reason = str(error) if isinstance(error, JobInterrupted) else type(error).__name__
            structlog.get_logger().warning("worker-interrupted", worker=worker.id, reason=reason)
        # With jitter, because workers that poll at the same moment would block each other.
        end = time.monotonic() + worker.settings.poll * random.uniform(0.5, 1.5)  # noqa: S311 - no secret
        while not worker.stop() and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, MAX_SLEEP))


def _claim(worker: Worker) -> Job | None:
    return claim(worker.engine, worker.id, worker.settings.device, worker.settings.lease)


def _disk_is_full(worker: Worker, was_full: bool) -> bool:  # noqa: FBT001
    """Whether jobs have to wait for space, rather than use up their attempts; logged once."""
    is_full = not has_space(worker.settings)
    log = structlog.get_logger().bind(worker=worker.id)
    if is_full and not was_full:
        log.warning("disk-full", consequence="no job is claimed until there is space")
    if was_full and not is_full:
        log.info("disk-has-space")
    return is_full


def run_attempt(worker: Worker, job: Job) -> None:
    """Runs a claimed job until its end is recorded, by this worker or another.

    Raises `DeviceError` where the device failed, as it would for all later jobs. Where the database
    is down (`SQLAlchemyError`, `JobInterrupted`), the job is retried when its lease has expired,
    unless its end was recorded after all.
    """
    log = structlog.get_logger().bind(worker=worker.id, job=job.id, attempt=job.attempt)
    log.info("job-claimed")
    ended: Ending
    failed_device: str | None = None
    with worker.heartbeat.track(job) as running:
        try:
            result = worker.jobs.run(running)
            published = _record_end(lambda: succeed(worker.engine, job, result), running)
            ended = "succeeded" if published else "lost"
        except OutOfTime:
            _record_end(lambda: hand_back(worker.engine, job), running)
            ended = "handed-back"
        except Cancelled:
            ended = "cancelled"
        except LeaseLost:
            ended = "lost"
        except AttemptFailed as failed:
            reason = given(
                type=failed.failure.type, detail=failed.failure.detail, exception=failed.traceback
            )
            log.warning("attempt-failed", **reason)
            ended = _write_failure(worker, running, failed.failure)
            failed_device = failed.failure.detail if failed.failure.of_device else None
        except (*TRANSIENT_ERRORS, JobInterrupted):
            raise
        except Exception as error:
            log.warning("attempt-failed", exc_info=error)
            failure = describe_failure(error, public_names(worker.settings))
            ended = _write_failure(worker, running, failure)
    log.info("attempt-ended", how=ended)
    # What remains is published, or another attempt can resume from it.
    if ended == "succeeded":
        delete_other_attempts(worker.artifacts, job)
    else:
        worker.artifacts.delete_prefix(attempt_prefix(job))
    if ended in ("succeeded", "failed", "cancelled"):
        delete_work(worker.settings.work_dir, job.id)
    if failed_device is not None:
        # Whoever started the worker starts it again, with a new process of jobs.
        raise DeviceError(f"{failed_device}; the worker ends", "start it again, or see to the GPU")


def _write_failure(worker: Worker, running: RunningJob, failure: Failure) -> Ending:
    job = running.job
    retry = failure.retry and job.attempt < job.max_attempts
    delay = worker.settings.retry_delay * 2 ** (job.attempt - 1) if retry else None
    written = _record_end(lambda: fail(worker.engine, job, failure.error, retry_in=delay), running)
    if not written:
        return "lost"
    return "to-be-retried" if retry else "failed"


def _record_end(write: Callable[[], bool], running: RunningJob) -> bool:
    """Records the end of an attempt, and retries while the database is down."""
    began, delay = time.monotonic(), FIRST_DELAY
    while True:
        try:
            return write()
        except TRANSIENT_ERRORS:
            deadline = min(began + MAX_RECORD_SECONDS, running.deadline() + STOPPING_RECORD_SECONDS)
            if time.monotonic() >= deadline:
                raise
        time.sleep(delay)
        delay = min(MAX_DELAY, 2 * delay)
