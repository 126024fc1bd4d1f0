"""An attempt that is cancelled, abandoned or stopped while it runs, also where it hangs.

A process that was frozen by SIGSTOP stands for any that hangs: it answers nothing and nobody.
"""

import os
import signal
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from api.jobs.queue import claim
from api.jobs.store import Job, request_cancel
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import write_transaction
from api.storage.tables import JOBS
from api.worker.heartbeat import Heartbeat
from api.worker.job_process import JobProcess
from api.worker.worker import Worker, run_attempt
from tests.small_network import SLOW

LONG = {"backbone": SLOW, "augment_runs": 8}
"""Fields of a job whose images take long enough to interrupt it."""

Submit = Callable[..., Job]
Wait = Callable[[Job, str], Job]
Working = Callable[[Settings], AbstractContextManager[threading.Thread]]


Attempting = Callable[..., AbstractContextManager[Any]]


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_job_that_ends_within_the_grace_time_is_not_handed_back(
    submitted: Submit, wait_for: Wait, attempting: Attempting
) -> None:
    job = submitted(**LONG)
    stopping = threading.Event()

    with attempting(stopping.is_set) as attempt:
        attempt.wait_for_progress()
        stopping.set()

    assert wait_for(job, "succeeded").attempt == 1


def is_running(process: int | None) -> bool:
    return process is not None and Path(f"/proc/{process}").exists()
