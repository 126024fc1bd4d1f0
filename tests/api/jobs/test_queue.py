"""Jobs as workers see them, on SQLite and PostgreSQL: claimed, kept, lost."""

from collections import Counter
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
    events_after,
    get_job,
    list_jobs,
    request_cancel,
    submit,
)
from api.storage.database import connect, write_transaction
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


def test_a_claimed_job_runs_at_its_first_attempt(engine: Engine) -> None:
    job = submitted(engine)

    taken = claimed(engine, "one")

    assert taken == stored(engine, job)
    assert (taken.state, taken.attempt, taken.worker) == ("running", 1, "one")
    assert taken.started_at is not None
    assert taken.lease_until is not None
    assert taken.lease_until - taken.started_at == pytest.approx(LEASE)


def test_nothing_is_claimed_where_nothing_waits(engine: Engine) -> None:
    assert claim(engine, "worker", "cpu", LEASE) is None


def test_the_job_that_has_waited_longest_is_claimed_first(engine: Engine) -> None:
    jobs = [submitted(engine) for _ in range(3)]
    for job, run_after in zip(jobs, (3000.0, 1000.0, 2000.0), strict=True):
        set_columns(engine, job, run_after=run_after)

    order = [claimed(engine).id for _ in jobs]

    assert order == [jobs[1].id, jobs[2].id, jobs[0].id]


def test_six_workers_claim_each_of_sixty_jobs_once(engine: Engine, database_url: str) -> None:
    jobs = [submitted(engine) for _ in range(60)]
    barrier = Barrier(6)

    def work(name: str) -> list[str]:
        own = connect(database_url)  # as processes have, each its own connections
        barrier.wait()
        done = []
        while (job := claim(own, name, "cpu", LEASE)) is not None:
            assert heartbeat(own, job, LEASE, HALFWAY) == "ok"
            assert succeed(own, job, {"worker": name})
            done.append(job.id)
        own.dispose()
        return done

    with ThreadPoolExecutor(6) as pool:
        claims = dict(zip("abcdef", pool.map(work, "abcdef"), strict=True))

    assert Counter(job for own in claims.values() for job in own) == Counter(job.id for job in jobs)
    for job in list_jobs(engine, None, limit=100):
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert job.result is not None
        assert job.id in claims[job.result["worker"]]
    assert states_of(engine, jobs[0]) == ["queued", "running", "succeeded"]


def test_one_of_many_workers_takes_a_job_over(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine, "first")
    fall_silent(engine, first)
    barrier = Barrier(6)

    def take(name: str) -> Job | None:
        barrier.wait()
        return claim(engine, name, "cpu", LEASE)

    with ThreadPoolExecutor(6) as pool:
        taken = [job for job in pool.map(take, "abcdef") if job is not None]

    assert [(job.id, job.attempt) for job in taken] == [(first.id, 2)]


def test_a_job_is_not_claimed_while_its_lease_lasts(engine: Engine) -> None:
    submitted(engine)
    claimed(engine, "first")

    assert claim(engine, "second", "cpu", LEASE) is None


def test_a_silent_worker_s_job_is_claimed_by_another_as_the_next_attempt(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine, "first")
    fall_silent(engine, first)

    second = claimed(engine, "second")

    assert (second.id, second.attempt, second.worker) == (first.id, 2, "second")
    assert second.started_at == first.started_at


def test_a_silent_worker_s_job_comes_before_those_that_wait(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine)
    fall_silent(engine, first)
    set_columns(engine, submitted(engine), run_after=1.0)

    assert claimed(engine).id == first.id


def test_the_first_worker_finds_its_job_lost_and_cannot_end_it(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine, "first")
    fall_silent(engine, first)
    claimed(engine, "second")
    before = stored(engine, first)
    events = events_after(engine, first.id, 0, 100)

    assert heartbeat(engine, first, LEASE, HALFWAY) == "lost"
    for name, end in ENDINGS.items():
        assert not end(engine, first), name
    assert stored(engine, first) == before
    assert events_after(engine, first.id, 0, 100) == events


def test_the_first_worker_cannot_publish_after_the_second_did(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine, "first")
    fall_silent(engine, first)
    second = claimed(engine, "second")

    assert succeed(engine, second, {"by": "second"})
    assert not succeed(engine, first, {"by": "first"})
    assert stored(engine, first).result == {"by": "second"}


def test_the_same_worker_is_fenced_from_its_own_earlier_attempt(engine: Engine) -> None:
    submitted(engine)
    first = claimed(engine, "one")
    fall_silent(engine, first)
    second = claimed(engine, "one")

    assert not succeed(engine, first, RESULT)
    assert succeed(engine, second, RESULT)


def test_of_two_attempts_that_publish_at_the_same_moment_one_does(engine: Engine) -> None:
    submitted(engine)
    attempts = [claimed(engine)]
    for _ in range(2):
        fall_silent(engine, attempts[-1])
        attempts.append(claimed(engine))
    barrier = Barrier(3)

    def publish(job: Job) -> bool:
        barrier.wait()
        return succeed(engine, job, {"attempt": job.attempt})

    with ThreadPoolExecutor(3) as pool:
        published = list(pool.map(publish, attempts))

    assert published == [False, False, True]
    assert stored(engine, attempts[0]).result == {"attempt": 3}
    assert states_of(engine, attempts[0]).count("succeeded") == 1


def test_a_heartbeat_keeps_the_job_and_says_how_far_it_is(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    set_columns(engine, job, lease_until=1000.0)

    answer = heartbeat(engine, job, LEASE, HALFWAY)

    kept = stored(engine, job)
    assert answer == "ok"
    assert (kept.done, kept.total, kept.bad, kept.rate) == (5, 10, 1, 2.5)
    assert claim(engine, "other", "cpu", LEASE) is None


@pytest.mark.parametrize("rate", [None, float("nan"), float("inf")])
def test_a_rate_that_is_no_number_is_left_out(engine: Engine, rate: float | None) -> None:
    submitted(engine)
    job = claimed(engine)

    heartbeat(engine, job, LEASE, Progress(done=0, total=None, bad=0, rate=rate))

    assert stored(engine, job).rate is None
    assert events_after(engine, job.id, 0, 100)[-1].data["rate"] is None


def test_a_wish_to_cancel_rides_on_the_heartbeat(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    request_cancel(engine, "owner", job.id)

    answer = heartbeat(engine, job, LEASE, HALFWAY)

    assert answer == "cancel"
    assert cancelled(engine, job)
    ended = stored(engine, job)
    assert (ended.state, ended.lease_until) == ("cancelled", None)
    assert states_of(engine, job) == ["queued", "running", "running", "cancelled"]


def test_a_result_that_was_ready_first_is_published_in_spite_of_a_wish_to_cancel(
    engine: Engine,
) -> None:
    submitted(engine)
    job = claimed(engine)
    request_cancel(engine, "owner", job.id)

    assert succeed(engine, job, RESULT)
    assert stored(engine, job).state == "succeeded"


@pytest.mark.parametrize("name", ["fail", "repeat", "hand back"])
def test_a_job_that_nobody_wants_is_not_tried_again(engine: Engine, name: str) -> None:
    submitted(engine)
    job = claimed(engine)
    request_cancel(engine, "owner", job.id)

    assert ENDINGS[name](engine, job)
    assert stored(engine, job).state == "cancelled"
    assert claim(engine, "other", "cpu", LEASE) is None


def test_a_job_that_nobody_wants_ends_when_its_worker_falls_silent(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    request_cancel(engine, "owner", job.id)
    fall_silent(engine, job)

    assert claim(engine, "other", "cpu", LEASE) is None
    assert stored(engine, job).state == "cancelled"
