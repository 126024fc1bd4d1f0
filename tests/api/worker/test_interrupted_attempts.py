"""An attempt that is cancelled, abandoned, stopped or killed while it runs, or that hangs.

A process that was frozen by SIGSTOP stands for any that hangs: it answers nothing and nobody.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.jobs.queue import claim
from api.jobs.rows import Job
from api.jobs.store import get_job, request_cancel
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import write_transaction
from api.storage.tables import JOBS
from api.storage.worker_registry import live_workers
from api.worker.heartbeat import Heartbeat
from api.worker.job_process import JobProcess
from api.worker.worker import Worker, run_attempt

LONG = {"augment_runs": 30}
"""Fields of a job whose images take long enough to interrupt it."""

Submit = Callable[..., Job]
Wait = Callable[[Job, str], Job]
Working = Callable[[Settings], AbstractContextManager[threading.Thread]]


@dataclass(frozen=True)
class Attempt:
    """An attempt that runs in a thread, and its process."""

    job: Job
    engine: Engine
    process: JobProcess

    def send(self, number: int) -> None:
        """Sends a signal to the process of the job."""
        os.kill(self.process.pid or 0, number)

    def wait_for_progress(self) -> None:
        while not self.stored().done:
            time.sleep(0.01)

    def stored(self) -> Job:
        job = get_job(self.engine, None, self.job.id)
        assert job is not None
        return job


Attempting = Callable[..., AbstractContextManager[Attempt]]


@pytest.fixture
def attempting(
    sqlite_engine: Engine, settings: Settings, forkserver: ForkServerContext
) -> Attempting:
    """Runs one attempt in a thread, which ends with the context."""

    @contextmanager
    def run(
        stop: Callable[[], bool] = bool, *, frozen: bool = False, **changed: object
    ) -> Iterator[Attempt]:
        own = settings.model_copy(update=changed)
        job = claim(sqlite_engine, "worker", "cpu", own.lease)
        assert job is not None
        heartbeat = Heartbeat(sqlite_engine, "worker", own, stop)
        process = JobProcess(own, forkserver)
        process.start()
        attempt = Attempt(job, sqlite_engine, process)
        if frozen:
            attempt.send(signal.SIGSTOP)
        artifacts = open_artifacts(own.artifact_root)
        worker = Worker("worker", own, sqlite_engine, artifacts, process, heartbeat, stop)
        with heartbeat.started():
            thread = threading.Thread(target=run_attempt, args=(worker, job))
            thread.start()
            try:
                yield attempt
            finally:
                thread.join()
                process.close()

    return run


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_cancelled_job_stops_and_the_worker_takes_the_next(
    settings: Settings, submitted: Submit, wait_for: Wait, attempting: Attempting, working: Working
) -> None:
    job, other = submitted(**LONG), submitted()
    artifacts = open_artifacts(settings.artifact_root)

    with attempting() as attempt:
        attempt.wait_for_progress()
        request_cancel(attempt.engine, "", job.id)
        wait_for(job, "cancelled")
    with working(settings):
        wait_for(other, "succeeded")

    assert artifacts.list_folders("jobs") == [f"jobs/{other.id}"]
    assert files_below(settings.work_dir) == []


def test_a_job_that_hangs_can_be_cancelled(
    settings: Settings, submitted: Submit, attempting: Attempting
) -> None:
    job = submitted(**LONG)

    with attempting() as attempt:
        attempt.wait_for_progress()
        attempt.send(signal.SIGSTOP)
        process = attempt.process.pid
        request_cancel(attempt.engine, "", job.id)

    assert attempt.stored().state == "cancelled"
    assert not is_running(process)
    assert files_below(settings.work_dir) == []


def test_a_worker_whose_job_was_killed_runs_the_next(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    forkserver: ForkServerContext,
) -> None:
    job, other = submitted(**LONG), submitted()
    process = JobProcess(settings, forkserver)
    heartbeat = Heartbeat(sqlite_engine, "worker", settings, bool)
    artifacts = open_artifacts(settings.artifact_root)
    worker = Worker("worker", settings, sqlite_engine, artifacts, process, heartbeat, bool)

    process.start()
    os.kill(process.pid or 0, signal.SIGSTOP)
    with heartbeat.started():
        for each in (job, other):
            claimed = claim(sqlite_engine, "worker", "cpu", settings.lease)
            assert claimed is not None
            assert claimed.id == each.id
            request_cancel(sqlite_engine, "", job.id)
            run_attempt(worker, claimed)
    process.close()

    wait_for(job, "cancelled")
    wait_for(other, "succeeded")


def test_an_abandoned_attempt_does_not_overwrite_its_successor(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    attempting: Attempting,
    working: Working,
) -> None:
    job = submitted()
    artifacts = open_artifacts(settings.artifact_root)

    # A heartbeat that never comes: as where the worker was frozen, or cut off.
    with attempting(heartbeat=3600.0, frozen=True):
        with write_transaction(sqlite_engine) as connection:
            connection.execute(JOBS.update().values(lease_until=0.0))
        with working(settings):
            done = wait_for(job, "succeeded")

    after = wait_for(job, "succeeded")
    assert after == done
    assert done.attempt == 2
    assert artifacts.list_folders(f"jobs/{job.id}") == [f"jobs/{job.id}/a2"]


@pytest.mark.parametrize("hangs", [False, True])
def test_a_stopping_worker_hands_its_job_back_within_the_grace_period_and_another_resumes_it(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    attempting: Attempting,
    working: Working,
    *,
    hangs: bool,
) -> None:
    job = submitted(**LONG)
    stopping = threading.Event()

    with attempting(stopping.is_set, grace=0.4) as attempt:
        attempt.wait_for_progress()
        if hangs:
            attempt.send(signal.SIGSTOP)
        stopping.set()
    handed_back = attempt.stored()
    with working(settings):
        done = wait_for(job, "succeeded")

    assert handed_back.state == "queued"
    assert handed_back.max_attempts - handed_back.attempt == 3
    assert done.attempt == 2


def test_a_job_that_ends_within_the_grace_time_is_not_handed_back(
    submitted: Submit, wait_for: Wait, attempting: Attempting
) -> None:
    job = submitted(**LONG)
    stopping = threading.Event()

    with attempting(stopping.is_set) as attempt:
        attempt.wait_for_progress()
        stopping.set()

    assert wait_for(job, "succeeded").attempt == 1


def test_an_attempt_whose_process_dies_is_repeated_by_the_same_worker(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted(**LONG)

    with attempting() as attempt:
        attempt.wait_for_progress()
        attempt.send(signal.SIGKILL)
    requeued = attempt.stored()

    assert (requeued.state, requeued.attempt) == ("queued", 1)
    assert requeued.error is not None
    assert requeued.error["type"] == "process-ended"
    assert "by signal 9, perhaps for lack of memory" in requeued.error["detail"]


def test_a_job_whose_process_dies_each_time_fails_with_the_reason(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted(**LONG)

    for _ in range(3):
        with attempting(frozen=True) as attempt:
            attempt.send(signal.SIGABRT)
            attempt.send(signal.SIGCONT)

    failed = attempt.stored()
    assert failed.state == "failed"
    assert failed.error is not None
    assert "by signal 6 while starting the job" in failed.error["detail"]


def test_a_process_that_does_not_answer_is_killed_once_the_stage_took_too_long(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted()

    with attempting(frozen=True, stage_seconds=0.2) as attempt:
        process = attempt.process.pid

    assert attempt.stored().error == {
        "type": "time-limit",
        "detail": "starting the job made no progress for 0.2 s",
        "remedy": "raise DIFFICULTY_STAGE_SECONDS (a setting of the operator)",
    }
    assert not is_running(process)


def test_listing_that_takes_too_long_fails_the_job_at_once(
    submitted: Submit, attempting: Attempting, photos: Path
) -> None:
    for number in range(4000):
        (photos / f"class {number:04d}").mkdir()
    submitted()

    with attempting(listing_seconds=0.01) as attempt:
        pass

    failed = attempt.stored()
    assert failed.state == "failed"
    assert failed.attempt == 1
    assert failed.error is not None
    assert failed.error["detail"] == "listing the dataset took longer than 0.01 s"
    assert "DIFFICULTY_LISTING_SECONDS" in failed.error["remedy"]


def test_an_image_that_takes_too_long_is_named(
    submitted: Submit, attempting: Attempting, photos: Path
) -> None:
    # Python decodes numbers as text, which takes seconds even for as many as are allowed.
    (photos / "cat" / "slow.ppm").write_bytes(b"P3 1990 2000 255\n" + b"1 " * (3 * 1990 * 2000))
    submitted()

    with attempting(image_seconds=1.0) as attempt:
        pass

    requeued = attempt.stored()
    assert requeued.state == "queued"
    assert requeued.error is not None
    assert requeued.error["detail"] == "an image took longer than 1 s to read: cat/slow.ppm"
    assert requeued.error["field"] == "dataset"


def test_a_worker_whose_process_does_not_answer_counts_as_dead(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted()

    with attempting(frozen=True, lease=0.5) as attempt:
        while not live_workers(attempt.engine, within=0.5):
            time.sleep(0.01)
        while live_workers(attempt.engine, within=0.5):
            time.sleep(0.01)
        renewed = attempt.stored()
        attempt.send(signal.SIGCONT)

    assert (renewed.state, renewed.attempt) == ("running", 1)
    assert attempt.stored().state == "succeeded"


def is_running(process: int | None) -> bool:
    return process is not None and Path(f"/proc/{process}").exists()
