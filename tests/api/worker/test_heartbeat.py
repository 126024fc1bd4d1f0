"""The heartbeat tells a job about cancellation and the database about progress."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import Engine

from api.jobs.queue import Progress, claim, hand_back, live_workers, succeed
from api.jobs.store import Job, SubmitLimits, get_job, request_cancel, submit
from api.settings import Settings
from api.storage.database import connect, migrate, write_transaction
from api.storage.tables import JOBS
from api.worker.heartbeat import Cancelled, Heartbeat, LeaseLost, OutOfTime, RunningJob
from tests.api.stored_results import stored_result

SETTINGS = Settings(device="cpu", heartbeat=0.02, lease=60.0, grace=0.02)
HALF = Progress(done=5, total=10, bad=1, rate=2.5)


def never() -> bool:
    return False


def claimed(engine: Engine) -> Job:
    submit(engine, "", {"dataset": {}}, None, SubmitLimits(100, 3))
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    return job


@contextmanager
def tracked(
    engine: Engine, job: Job, stop: Callable[[], bool] = never, settings: Settings = SETTINGS
) -> Iterator[RunningJob]:
    heartbeat = Heartbeat(engine, "worker", settings, stop)
    with heartbeat.started(), heartbeat.track(job) as running:
        yield running


def wait_until(condition: Callable[[], bool]) -> None:
    """Returns once the condition holds; the time limit of the test ends it otherwise."""
    while not condition():
        time.sleep(0.01)


def state(engine: Engine, job: Job) -> Job:
    stored = get_job(engine, None, job.id)
    assert stored is not None
    return stored


def test_progress_reaches_the_database(engine: Engine) -> None:
    job = claimed(engine)

    with tracked(engine, job) as running:
        running.check(HALF)
        wait_until(lambda: state(engine, job).done == 5)

    found = state(engine, job)
    assert (found.total, found.bad, found.rate) == (10, 1, 2.5)


def test_the_lease_is_renewed_without_progress(engine: Engine) -> None:
    job = claimed(engine)
    assert job.lease_until is not None
    end = job.lease_until

    with tracked(engine, job):
        wait_until(lambda: (state(engine, job).lease_until or 0) > end)


def test_the_time_of_all_attempts_is_added_up(engine: Engine) -> None:
    job = claimed(engine)
    with tracked(engine, job):
        wait_until(lambda: state(engine, job).seconds > 0)
    first = state(engine, job).seconds
    hand_back(engine, job)
    second = claim(engine, "worker", "cpu", 60.0)
    assert second is not None

    with tracked(engine, second) as running:
        wait_until(lambda: state(engine, job).seconds > first)

    assert second.seconds == first
    assert running.worked > first


def test_a_cancelled_job_is_ended_at_once_and_stops_at_its_next_check(engine: Engine) -> None:
    job = claimed(engine)

    with tracked(engine, job) as running:
        running.check(HALF)
        request_cancel(engine, "", job.id)
        wait_until(lambda: state(engine, job).state == "cancelled")
        wait_until(lambda: running.answer != "ok")

        with pytest.raises(Cancelled):
            running.check(HALF)


@pytest.mark.slow
def test_a_cancellation_does_not_wait_for_the_next_heartbeat(engine: Engine) -> None:
    job = claimed(engine)
    hourly = SETTINGS.model_copy(update={"heartbeat": 3600.0})

    with tracked(engine, job, settings=hourly):
        request_cancel(engine, "", job.id)
        wait_until(lambda: state(engine, job).state == "cancelled")


def test_a_worker_notices_that_another_has_its_job(engine: Engine) -> None:
    job = claimed(engine)

    with tracked(engine, job) as running:
        with write_transaction(engine) as connection:
            connection.execute(JOBS.update().values(attempt=job.attempt + 1, worker="other"))
        wait_until(lambda: running.answer != "ok")

        with pytest.raises(LeaseLost):
            running.check(HALF)
    assert (state(engine, job).done, state(engine, job).state) == (0, "running")


def test_the_grace_period_begins_when_the_worker_is_told_to_stop(sqlite_engine: Engine) -> None:
    job = claimed(sqlite_engine)
    told: list[bool] = []
    patient = SETTINGS.model_copy(update={"grace": 3600.0})

    with tracked(sqlite_engine, job, lambda: bool(told)) as running:
        running.check(HALF)
        told.append(True)
        time.sleep(2 * SETTINGS.grace)
        with pytest.raises(OutOfTime):
            wait_until(lambda: running.check(HALF) is not None)
    with tracked(sqlite_engine, job, lambda: True, patient) as running:
        running.check(HALF)


def test_a_worker_is_listed_with_its_job_and_images_until_it_ends(engine: Engine) -> None:
    job = claimed(engine)
    heartbeat = Heartbeat(engine, "worker", SETTINGS, never)

    with heartbeat.started():
        with heartbeat.track(job) as running:
            running.check(Progress(done=100, total=110, bad=0, rate=None))  # by attempts before
            running.check(Progress(done=107, total=110, bad=0, rate=None))
            wait_until(lambda: [worker.job for worker in live_workers(engine, 3600)] == [job.id])
            wait_until(lambda: live_workers(engine, 3600)[0].images == 7)
        wait_until(lambda: live_workers(engine, 3600)[0].job is None)
        (idle,) = live_workers(engine, 3600)

    assert (idle.id, idle.device, idle.images) == ("worker", "cpu", 7)
    assert live_workers(engine, 3600) == []


def test_a_job_survives_a_database_that_is_down(
    new_postgresql_url: Callable[[], str], postgresql_server: Path
) -> None:
    url = new_postgresql_url()
    engine = connect(url)
    migrate(engine)
    job = claimed(engine)

    with tracked(engine, job) as running:
        with unreachable(engine, postgresql_server):
            time.sleep(10 * SETTINGS.heartbeat)
            running.check(HALF)
        wait_until(lambda: state(engine, job).done == 5)
        running.check(HALF)
        published = succeed(engine, job, stored_result())

    assert published
    engine.dispose()


@contextmanager
def unreachable(engine: Engine, server: Path) -> Iterator[None]:
    """Closes the connections to the database and refuses new ones within the context."""
    name = engine.url.database
    with psycopg.connect(
        f"host={server} user=difficulty dbname=postgres", autocommit=True
    ) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", [name]
        )
        try:
            yield
        finally:
            connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
