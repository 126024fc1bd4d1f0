"""How jobs end or are tried again, on SQLite and PostgreSQL."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import pytest
from sqlalchemy import Engine

from api.jobs.queue import Progress, cancelled, claim, fail, hand_back, heartbeat, succeed
from api.jobs.store import (
    Job,
    SubmitLimits,
    counts,
    events_after,
    get_job,
    submit,
)
from api.storage.database import write_transaction
from api.storage.tables import JOBS

LEASE = 3600.0
HALFWAY = Progress(done=5, total=10, bad=1, rate=2.5)
RESULT = {"prefix": "jobs/x/a1", "num_samples": 10}
ERROR = {"type": "disk-full", "detail": "no space is left"}

Ending = Callable[[Engine, Job], bool]
ENDINGS: dict[str, Ending] = {
    "succeed": lambda engine, job: succeed(engine, job, RESULT),
    "fail": lambda engine, job: fail(engine, job, ERROR, retry_in=None),
    "repeat": lambda engine, job: fail(engine, job, ERROR, retry_in=0.0),
    "cancelled": cancelled,
    "hand back": hand_back,
}


def submitted(engine: Engine, max_attempts: int = 3) -> Job:
    limits = SubmitLimits(max_queued=1000, max_attempts=max_attempts)
    return submit(engine, "owner", {"dataset": {"root": "photos"}}, None, limits)[0]


def claimed(engine: Engine, worker: str = "worker") -> Job:
    job = claim(engine, worker, "cpu", LEASE)
    assert job is not None
    return job


def stored(engine: Engine, job: Job) -> Job:
    found = get_job(engine, None, job.id)
    assert found is not None
    return found


def set_columns(engine: Engine, job: Job, **columns: Any) -> None:  # noqa: ANN401 - of any type
    with write_transaction(engine) as connection:
        connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(columns))


def fall_silent(engine: Engine, job: Job) -> None:
    """As if the lease had run out."""
    set_columns(engine, job, lease_until=1000.0)


def states_of(engine: Engine, job: Job) -> list[str]:
    events = events_after(engine, job.id, 0, 1000)
    return [event.data["state"] for event in events if event.kind == "state"]


def test_success_is_written_with_the_result_and_all_samples_done(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    heartbeat(engine, job, LEASE, HALFWAY)

    assert succeed(engine, job, RESULT)

    ended = stored(engine, job)
    assert (ended.state, ended.result, ended.error) == ("succeeded", RESULT, None)
    assert (ended.done, ended.total, ended.lease_until) == (10, 10, None)
    assert ended.finished_at is not None


def test_success_forgets_why_an_earlier_attempt_failed(engine: Engine) -> None:
    submitted(engine)
    fail(engine, claimed(engine), ERROR, retry_in=0.0)

    job = claimed(engine)
    succeed(engine, job, RESULT)

    assert job.error == ERROR
    assert stored(engine, job).error is None


@pytest.mark.parametrize("name", ENDINGS)
def test_an_ending_that_is_written_again_is_recognised_and_changes_nothing(
    engine: Engine, name: str
) -> None:
    submitted(engine)
    job = claimed(engine)
    assert ENDINGS[name](engine, job)
    before = stored(engine, job)
    events = events_after(engine, job.id, 0, 100)

    assert ENDINGS[name](engine, job)
    assert stored(engine, job) == before
    assert events_after(engine, job.id, 0, 100) == events


def test_another_result_is_not_taken_for_the_one_written_before(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    succeed(engine, job, RESULT)

    assert not succeed(engine, job, {"prefix": "another"})
    assert not fail(engine, job, ERROR, retry_in=None)
    assert stored(engine, job).result == RESULT


def test_a_failure_that_would_happen_again_ends_the_job_at_once(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)

    assert fail(engine, job, ERROR, retry_in=None)

    ended = stored(engine, job)
    assert (ended.state, ended.error, ended.result) == ("failed", ERROR, None)
    assert events_after(engine, job.id, 0, 100)[-1].data == {"state": "failed", "error": ERROR}


def test_a_failed_attempt_is_repeated_when_its_time_has_come(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)

    assert fail(engine, job, ERROR, retry_in=LEASE)

    waiting = stored(engine, job)
    assert (waiting.state, waiting.error, waiting.attempt) == ("queued", ERROR, 1)
    assert claim(engine, "other", "cpu", LEASE) is None
    set_columns(engine, job, run_after=waiting.run_after - LEASE)
    again = claimed(engine)
    assert (again.id, again.attempt) == (job.id, 2)


def test_failures_end_the_job_after_as_many_attempts_as_allowed(engine: Engine) -> None:
    job = submitted(engine, max_attempts=3)
    for number in range(1, 4):
        attempt = claimed(engine)
        assert attempt.attempt == number
        fail(engine, attempt, {**ERROR, "attempt": number}, retry_in=0.0)

    ended = stored(engine, job)
    assert (ended.state, ended.error) == ("failed", {**ERROR, "attempt": 3})
    assert claim(engine, "worker", "cpu", LEASE) is None


def test_a_job_that_kills_its_workers_fails_with_the_reason(engine: Engine) -> None:
    job = submitted(engine, max_attempts=2)
    for _ in range(2):
        fall_silent(engine, claimed(engine))

    assert claim(engine, "worker", "cpu", LEASE) is None

    ended = stored(engine, job)
    assert (ended.state, ended.attempt) == ("failed", 2)
    assert ended.error is not None
    assert ended.error["type"] == "attempts-exhausted"
    assert "attempt 2 of 2" in ended.error["detail"]
    assert states_of(engine, job) == ["queued", "running", "running", "failed"]


def test_the_reason_names_the_failure_before(engine: Engine) -> None:
    job = submitted(engine, max_attempts=2)
    fail(engine, claimed(engine), ERROR, retry_in=0.0)
    fall_silent(engine, claimed(engine))

    claim(engine, "worker", "cpu", LEASE)

    ended = stored(engine, job)
    assert ended.error is not None
    assert ERROR["detail"] in ended.error["detail"]


def test_jobs_that_are_given_up_do_not_hide_those_that_wait(engine: Engine) -> None:
    for _ in range(3):
        submitted(engine, max_attempts=1)
    for job in [claimed(engine) for _ in range(3)]:
        fall_silent(engine, job)
    waiting = submitted(engine)

    assert claimed(engine).id == waiting.id
    assert counts(engine)["failed"] == 3


def test_handing_back_costs_no_attempt(engine: Engine) -> None:
    job = submitted(engine, max_attempts=2)
    for _ in range(5):
        assert hand_back(engine, claimed(engine))
    assert stored(engine, job).state == "queued"

    # Two more may be spent, as if it had never been claimed.
    assert fail(engine, claimed(engine), ERROR, retry_in=0.0)
    last = claimed(engine)
    assert fail(engine, last, ERROR, retry_in=0.0)

    assert stored(engine, job).state == "failed"


def test_who_handed_a_job_back_is_fenced_from_it(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine, "first")
    hand_back(engine, first)

    second = claimed(engine, "second")

    assert second.attempt != first.attempt
    assert heartbeat(engine, first, LEASE, HALFWAY) == "lost"
    assert not succeed(engine, first, RESULT)
    assert not hand_back(engine, first)
    assert stored(engine, second) == second


def test_a_cancel_and_a_success_at_the_same_moment_leave_one_end(engine: Engine) -> None:
    for _ in range(5):
        submitted(engine)
        job = claimed(engine)
        barrier = Barrier(2)

        def publish(job: Job = job, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return succeed(engine, job, RESULT)

        def end(job: Job = job, barrier: Barrier = barrier) -> bool:
            barrier.wait()
            return cancelled(engine, job)

        with ThreadPoolExecutor(2) as pool:
            published, ended = pool.submit(publish), pool.submit(end)

        states = states_of(engine, job)
        assert published.result() != ended.result()
        assert states[2:] == ["succeeded" if published.result() else "cancelled"]
