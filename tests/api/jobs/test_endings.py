"""How jobs end or are retried, on SQLite and PostgreSQL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine

from api.jobs.queue import cancelled, claim, fail, hand_back, succeed
from api.jobs.store import (
    Job,
    counts,
    events_after,
    request_cancel,
)
from difficulty_service.bodies.jobs import JobError
from tests.api.jobs.jobs_queue import Queue
from tests.api.stored_results import stored_result

LEASE = 3600.0
RESULT = stored_result("jobs/x/a1")
ERROR = JobError(type="disk-full", detail="no space is left")

Ending = Callable[[Engine, Job], bool]
ENDINGS: dict[str, Ending] = {
    "succeed": lambda engine, job: succeed(engine, job, RESULT),
    "fail": lambda engine, job: fail(engine, job, ERROR, retry_in=None),
    "retry": lambda engine, job: fail(engine, job, ERROR, retry_in=0.0),
    "cancelled": cancelled,
    "hand back": hand_back,
}


def test_success_is_written_with_the_result_and_all_samples_done(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    job = queue.claim()
    queue.heartbeat(job)

    assert succeed(engine, job, RESULT)

    ended = queue.stored(job)
    assert (ended.state, ended.result, ended.error) == ("succeeded", RESULT, None)
    assert (ended.done, ended.total, ended.lease_until) == (10, 10, None)
    assert ended.bad == RESULT.num_bad_images  # of which the last heartbeat knew one
    assert ended.finished_at is not None


def test_a_job_that_ends_before_its_first_heartbeat_has_done_all_samples(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    job = queue.claim()

    assert succeed(engine, job, RESULT)

    ended = queue.stored(job)
    assert ended.done == ended.total == RESULT.num_samples > 0
    assert ended.bad == RESULT.num_bad_images


def test_success_forgets_why_an_earlier_attempt_failed(engine: Engine, queue: Queue) -> None:
    queue.submit()
    fail(engine, queue.claim(), ERROR, retry_in=0.0)

    job = queue.claim()
    succeed(engine, job, RESULT)

    assert job.error == ERROR
    assert queue.stored(job).error is None


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_that_is_written_again_is_recognised_and_changes_nothing(
    engine: Engine, queue: Queue, name: str
) -> None:
    queue.submit()
    job = queue.claim()
    assert ENDINGS[name](engine, job)
    before = queue.stored(job)
    events = events_after(engine, job.id, 0, 100)

    assert ENDINGS[name](engine, job)
    assert queue.stored(job) == before
    assert events_after(engine, job.id, 0, 100) == events


def test_another_result_is_not_mistaken_for_the_recorded_one(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    succeed(engine, job, RESULT)

    assert not succeed(engine, job, stored_result("another"))
    assert not fail(engine, job, ERROR, retry_in=None)
    assert queue.stored(job).result == RESULT


def test_a_failure_that_would_happen_again_ends_the_job_at_once(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    job = queue.claim()

    assert fail(engine, job, ERROR, retry_in=None)

    ended = queue.stored(job)
    assert (ended.state, ended.error, ended.result) == ("failed", ERROR, None)
    assert events_after(engine, job.id, 0, 100)[-1].data == {
        "state": "failed",
        "error": ERROR.to_json(),
    }


@pytest.mark.parametrize("name", ["retry", "hand back"])
def test_who_follows_a_job_learns_that_it_is_queued_again_and_after_which_attempt(
    engine: Engine, queue: Queue, name: str
) -> None:
    queue.submit()
    job = queue.claim()

    ENDINGS[name](engine, job)

    assert queue.events(job)[-1] == ("state", {"state": "queued", "attempt": 1})


def test_a_failed_attempt_is_retried_after_its_delay(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()

    assert fail(engine, job, ERROR, retry_in=LEASE)

    waiting = queue.stored(job)
    assert (waiting.state, waiting.error, waiting.attempt) == ("queued", ERROR, 1)
    assert claim(engine, "other", "cpu", LEASE) is None
    queue.set_columns(job, run_after=waiting.run_after - LEASE)
    again = queue.claim()
    assert (again.id, again.attempt) == (job.id, 2)


def test_failures_end_the_job_after_as_many_attempts_as_allowed(
    engine: Engine, queue: Queue
) -> None:
    job = queue.submit(max_attempts=3)
    for number in range(1, 4):
        attempt = queue.claim()
        assert attempt.attempt == number
        error = JobError(type="disk-full", detail=f"attempt {number} found no space")
        fail(engine, attempt, error, retry_in=0.0)

    ended = queue.stored(job)
    assert (ended.state, ended.error) == ("failed", error)
    assert claim(engine, "worker", "cpu", LEASE) is None


def test_a_job_that_kills_its_workers_fails_with_the_reason(engine: Engine, queue: Queue) -> None:
    job = queue.submit(max_attempts=2)
    for _ in range(2):
        queue.expire_lease(queue.claim())

    assert claim(engine, "worker", "cpu", LEASE) is None

    ended = queue.stored(job)
    assert (ended.state, ended.attempt) == ("failed", 2)
    assert ended.error is not None
    assert ended.error.type == "attempts-exhausted"
    assert "attempt 2 of 2" in ended.error.detail
    assert queue.states(job) == ["queued", "running", "running", "failed"]


def test_the_reason_names_the_failure_before(engine: Engine, queue: Queue) -> None:
    job = queue.submit(max_attempts=2)
    fail(engine, queue.claim(), ERROR, retry_in=0.0)
    queue.expire_lease(queue.claim())

    claim(engine, "worker", "cpu", LEASE)

    ended = queue.stored(job)
    assert ended.error is not None
    assert ERROR.detail in ended.error.detail


def test_abandoned_jobs_do_not_block_queued_ones(engine: Engine, queue: Queue) -> None:
    for _ in range(3):
        queue.submit(max_attempts=1)
    for job in [queue.claim() for _ in range(3)]:
        queue.expire_lease(job)
    waiting = queue.submit()

    assert queue.claim().id == waiting.id
    assert counts(engine)["failed"] == 3


def test_handing_back_costs_no_attempt(engine: Engine, queue: Queue) -> None:
    job = queue.submit(max_attempts=2)
    for _ in range(5):
        assert hand_back(engine, queue.claim())
    assert queue.stored(job).state == "queued"

    # Two more may be spent, as if it had never been claimed.
    assert fail(engine, queue.claim(), ERROR, retry_in=0.0)
    last = queue.claim()
    assert fail(engine, last, ERROR, retry_in=0.0)

    assert queue.stored(job).state == "failed"


def test_a_worker_that_handed_a_job_back_is_fenced_from_it(engine: Engine, queue: Queue) -> None:
    queue.submit()
    first = queue.claim("first")
    hand_back(engine, first)

    second = queue.claim("second")

    assert second.attempt != first.attempt
    assert queue.heartbeat(first) == "lost"
    assert not succeed(engine, first, RESULT)
    assert not hand_back(engine, first)
    assert queue.stored(second) == second


def test_a_cancel_and_a_success_at_the_same_moment_leave_one_end(
    engine: Engine, queue: Queue
) -> None:
    for _ in range(5):
        queue.submit()
        job = queue.claim()
        barrier = Barrier(2)

        def publish(job: Job = job, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return succeed(engine, job, RESULT)

        def end(job: Job = job, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return cancelled(engine, job)

        with ThreadPoolExecutor(2) as pool:
            published, ended = pool.submit(publish), pool.submit(end)

        states = queue.states(job)
        assert published.result() != ended.result()
        assert states[2:] == ["succeeded" if published.result() else "cancelled"]


def test_the_first_worker_finds_its_job_lost_and_cannot_end_it(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    first = queue.claim("first")
    queue.expire_lease(first)
    queue.claim("second")
    before = queue.stored(first)
    events = events_after(engine, first.id, 0, 100)

    assert queue.heartbeat(first) == "lost"
    for name, end in ENDINGS.items():
        assert not end(engine, first), name
    assert queue.stored(first) == before
    assert events_after(engine, first.id, 0, 100) == events


@pytest.mark.parametrize("name", ["fail", "retry", "hand back"])
def test_a_job_to_cancel_is_not_retried(engine: Engine, queue: Queue, name: str) -> None:
    queue.submit()
    job = queue.claim()
    request_cancel(engine, "owner", job.id)

    assert ENDINGS[name](engine, job)
    assert queue.stored(job).state == "cancelled"
    assert claim(engine, "other", "cpu", LEASE) is None
