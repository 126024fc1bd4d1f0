"""A clock that is set back by an hour holds up no job, and takes none from a living worker."""

from collections.abc import Callable

import pytest
from sqlalchemy import Engine

from api.jobs.queue import Progress, claim, fail, hand_back, heartbeat
from api.jobs.store import oldest_queued_age
from difficulty_service.bodies.jobs import JobError
from tests.api.jobs.jobs_queue import Queue

LEASE = 60.0
HOUR = 3600.0
ERROR = JobError(type="disk-full", detail="full")

SetClock = Callable[[float], None]


def test_a_job_that_was_queued_before_is_claimed_at_once(queue: Queue, set_clock: SetClock) -> None:
    job = queue.submit()

    set_clock(-HOUR)

    assert queue.claim().id == job.id


def test_a_job_that_was_handed_back_before_is_claimed_at_once(
    engine: Engine, queue: Queue, set_clock: SetClock
) -> None:
    queue.submit()
    job = queue.claim()
    hand_back(engine, job)

    set_clock(-HOUR)

    assert queue.claim().id == job.id


def test_jobs_that_were_queued_before_come_before_later_ones(
    queue: Queue, set_clock: SetClock
) -> None:
    before = [queue.submit(), queue.submit()]
    set_clock(-HOUR)
    later = queue.submit()

    order = [queue.claim().id for _ in range(3)]

    assert order == [before[0].id, before[1].id, later.id]


def test_a_delay_that_was_written_before_counts_as_over_and_one_after_holds(
    engine: Engine, queue: Queue, set_clock: SetClock
) -> None:
    queue.submit()
    first = queue.claim()
    fail(engine, first, ERROR, retry_in=5.0)
    set_clock(-HOUR)

    again = queue.claim()
    fail(engine, again, ERROR, retry_in=HOUR)

    assert again.id == first.id
    assert claim(engine, "worker", "cpu", LEASE) is None


def test_the_job_of_a_dead_worker_is_taken_over_once_its_lease_is_over_by_the_new_clock(
    engine: Engine, queue: Queue, set_clock: SetClock
) -> None:
    queue.submit()
    first = claim(engine, "dead", "cpu", LEASE)
    assert first is not None

    set_clock(-HOUR)
    assert claim(engine, "other", "cpu", LEASE) is None
    set_clock(LEASE + 1)
    second = claim(engine, "other", "cpu", LEASE)

    assert second is not None
    assert (second.id, second.attempt) == (first.id, 2)


def test_a_lease_keeps_its_own_length_whatever_that_of_the_worker_who_looks(
    engine: Engine, queue: Queue, set_clock: SetClock
) -> None:
    queue.submit()
    first = claim(engine, "patient", "cpu", 10 * LEASE)
    assert first is not None

    set_clock(-HOUR)
    for _ in range(5):
        assert claim(engine, "other", "cpu", LEASE) is None
        set_clock(LEASE + 1)

    kept = queue.stored(first)
    assert (kept.attempt, kept.worker) == (1, "patient")


def test_a_living_worker_keeps_its_job(engine: Engine, queue: Queue, set_clock: SetClock) -> None:
    queue.submit()
    job = claim(engine, "living", "cpu", LEASE)
    assert job is not None

    set_clock(-HOUR)
    for _ in range(3):
        assert claim(engine, "other", "cpu", LEASE) is None
        assert heartbeat(engine, job, LEASE, Progress()) == "ok"
        set_clock(LEASE / 2)

    assert queue.stored(job).attempt == 1


def test_a_lease_is_not_shortened_where_the_clock_goes_on(
    engine: Engine, queue: Queue, set_clock: SetClock
) -> None:
    queue.submit()
    job = claim(engine, "worker", "cpu", LEASE)
    assert job is not None

    claim(engine, "other", "cpu", LEASE)
    set_clock(LEASE / 2)
    claim(engine, "other", "cpu", LEASE)

    assert queue.stored(job).lease_until == job.lease_until


def test_the_age_of_a_job_that_was_queued_before_is_none_rather_than_unknown(
    engine: Engine, queue: Queue, set_clock: SetClock
) -> None:
    queue.submit()
    set_clock(-HOUR)
    assert oldest_queued_age(engine) == 0.0

    queue.submit()
    set_clock(LEASE)

    assert oldest_queued_age(engine) == pytest.approx(LEASE, abs=30)
