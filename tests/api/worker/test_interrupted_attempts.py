"""An attempt that is cancelled, abandoned or stopped while it runs, also where it hangs.

A process that was frozen by SIGSTOP stands for any that hangs: it answers nothing and nobody.
"""

import os
import signal
import threading

import pytest

from api.jobs.store import request_cancel
from api.storage.database import write_transaction
from api.storage.tables import JOBS
from api.worker.heartbeat import Heartbeat
from api.worker.job_process import JobProcess
from api.worker.worker import Worker, run_attempt
from tests.api.worker.bench import LONG, Bench, is_running


@pytest.mark.slow
def test_a_cancelled_job_stops_and_the_worker_takes_the_next(bench: Bench) -> None:
    job, other = bench.submit(**LONG), bench.submit()

    with bench.attempting() as attempt:
        attempt.wait_for_progress()
        request_cancel(attempt.engine, "", job.id)
        bench.wait_for(job, "cancelled")
    with bench.working():
        bench.wait_for(other, "succeeded")

    assert bench.artifacts.list_folders("jobs") == [f"jobs/{other.id}"]
    assert bench.files_under_way() == []


@pytest.mark.slow
def test_a_job_that_hangs_can_be_cancelled(bench: Bench) -> None:
    job = bench.submit(**LONG)

    with bench.attempting() as attempt:
        attempt.wait_for_progress()
        attempt.send(signal.SIGSTOP)
        process = attempt.process.pid
        request_cancel(attempt.engine, "", job.id)

    assert attempt.stored().state == "cancelled"
    assert not is_running(process)
    assert bench.files_under_way() == []


@pytest.mark.slow
def test_a_worker_whose_job_was_killed_runs_the_next(bench: Bench) -> None:
    job, other = bench.submit(**LONG), bench.submit()
    process = JobProcess(bench.settings, bench.context)
    heartbeat = Heartbeat(bench.engine, "worker", bench.settings, bool)
    worker = Worker(
        "worker", bench.settings, bench.engine, bench.artifacts, process, heartbeat, bool
    )

    process.start()
    os.kill(process.pid or 0, signal.SIGSTOP)
    with heartbeat.started():
        for each in (job, other):
            claimed = bench.claim_next()
            assert claimed.id == each.id
            request_cancel(bench.engine, "", job.id)
            run_attempt(worker, claimed)
    process.close()

    bench.wait_for(job, "cancelled")
    bench.wait_for(other, "succeeded")


@pytest.mark.slow
def test_an_abandoned_attempt_does_not_overwrite_its_successor(bench: Bench) -> None:
    job = bench.submit()

    # A heartbeat that never comes: as where the worker was frozen, or cut off.
    with bench.attempting(heartbeat=3600.0, frozen=True):
        with write_transaction(bench.engine) as connection:
            connection.execute(JOBS.update().values(lease_until=0.0))
        with bench.working():
            done = bench.wait_for(job, "succeeded")

    after = bench.wait_for(job, "succeeded")
    assert after == done
    assert done.attempt == 2
    assert bench.artifacts.list_folders(f"jobs/{job.id}") == [f"jobs/{job.id}/a2"]


@pytest.mark.slow
@pytest.mark.parametrize("hangs", [False, True])
def test_a_stopping_worker_hands_its_job_back_within_the_grace_period_and_another_resumes_it(
    bench: Bench, *, hangs: bool
) -> None:
    job = bench.submit(**LONG)
    stopping = threading.Event()

    with bench.attempting(stopping.is_set, grace=0.4) as attempt:
        attempt.wait_for_progress()
        if hangs:
            attempt.send(signal.SIGSTOP)
        stopping.set()
    handed_back = attempt.stored()
    with bench.working():
        done = bench.wait_for(job, "succeeded")

    assert handed_back.state == "queued"
    assert handed_back.max_attempts - handed_back.attempt == 3
    assert done.attempt == 2


@pytest.mark.slow
def test_a_job_that_ends_within_the_grace_time_is_not_handed_back(bench: Bench) -> None:
    job = bench.submit(**LONG)
    stopping = threading.Event()

    with bench.attempting(stopping.is_set) as attempt:
        attempt.wait_for_progress()
        stopping.set()

    assert bench.wait_for(job, "succeeded").attempt == 1
