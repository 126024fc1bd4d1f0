"""The job queue, on SQLite and PostgreSQL: jobs are claimed, kept by heartbeats, lost."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine

from api.jobs.queue import Progress, cancelled, claim, claim_alone, heartbeat, succeed
from api.jobs.store import (
    Job,
    events_after,
    list_jobs,
    request_cancel,
)
from api.storage.database import connect, write_transaction
from tests.api.jobs.jobs_queue import Queue
from tests.api.stored_results import stored_result

LEASE = 3600.0
RESULT = stored_result("jobs/x/a1")
HALFWAY = Progress(done=5, total=10, bad=1, rate=2.5)


def test_a_claimed_job_runs_at_its_first_attempt(queue: Queue) -> None:
    job = queue.submit()

    taken = queue.claim("one")

    assert taken == queue.stored(job)
    assert (taken.state, taken.attempt, taken.worker) == ("running", 1, "one")
    assert taken.started_at is not None
    assert taken.lease_until is not None
    assert taken.lease_until - taken.started_at == pytest.approx(LEASE)


def test_nothing_is_claimed_where_nothing_waits(engine: Engine) -> None:
    assert claim(engine, "worker", "cpu", LEASE) is None


def test_a_poll_that_finds_nothing_waits_for_nobody_who_writes_or_claims(engine: Engine) -> None:
    other = connect(engine.url.render_as_string(hide_password=False))
    with write_transaction(other) as connection:
        claim_alone(connection)

        assert claim(engine, "worker", "cpu", LEASE) is None
    other.dispose()


def test_the_job_that_has_waited_longest_is_claimed_first(queue: Queue) -> None:
    jobs = [queue.submit() for _ in range(3)]
    for job, run_after in zip(jobs, (3000.0, 1000.0, 2000.0), strict=True):
        queue.set_columns(job, run_after=run_after)

    order = [queue.claim().id for _ in jobs]

    assert order == [jobs[1].id, jobs[2].id, jobs[0].id]


@pytest.mark.slow
def test_six_workers_claim_each_of_sixty_jobs_once(engine: Engine, queue: Queue) -> None:
    jobs = [queue.submit() for _ in range(60)]
    url = engine.url.render_as_string(hide_password=False)
    barrier = Barrier(6)

    def work(name: str) -> list[str]:
        own = connect(url)  # as processes have, each its own connections
        barrier.wait()
        done = []
        while (job := claim(own, name, "cpu", LEASE)) is not None:
            assert heartbeat(own, job, LEASE, HALFWAY) == "ok"
            assert succeed(own, job, stored_result(name))
            done.append(job.id)
        own.dispose()
        return done

    with ThreadPoolExecutor(6) as pool:
        claims = dict(zip("abcdef", pool.map(work, "abcdef"), strict=True))

    assert Counter(job for own in claims.values() for job in own) == Counter(job.id for job in jobs)
    for job in list_jobs(engine, None, limit=100):
        assert (job.state, job.attempt) == ("succeeded", 1)
        assert job.result is not None
        assert job.id in claims[job.result.prefix]
    assert queue.states(jobs[0]) == ["queued", "running", "succeeded"]


def test_only_one_worker_claims_a_job_with_an_expired_lease(engine: Engine, queue: Queue) -> None:
    queue.submit()
    first = queue.claim("first")
    queue.expire_lease(first)
    barrier = Barrier(6)

    def take(name: str) -> Job | None:
        barrier.wait()
        return claim(engine, name, "cpu", LEASE)

    with ThreadPoolExecutor(6) as pool:
        taken = [job for job in pool.map(take, "abcdef") if job is not None]

    assert [(job.id, job.attempt) for job in taken] == [(first.id, 2)]


def test_a_job_is_not_claimed_while_its_lease_lasts(engine: Engine, queue: Queue) -> None:
    queue.submit()
    queue.claim("first")

    assert claim(engine, "second", "cpu", LEASE) is None


def test_a_job_with_an_expired_lease_is_claimed_as_the_next_attempt(queue: Queue) -> None:
    queue.submit()
    first = queue.claim("first")
    queue.expire_lease(first)

    second = queue.claim("second")

    assert (second.id, second.attempt, second.worker) == (first.id, 2, "second")
    assert second.started_at == first.started_at


def test_a_job_with_an_expired_lease_comes_before_queued_ones(queue: Queue) -> None:
    queue.submit()
    first = queue.claim()
    queue.expire_lease(first)
    queue.set_columns(queue.submit(), run_after=1.0)

    assert queue.claim().id == first.id


def test_the_first_worker_cannot_publish_after_the_second_did(engine: Engine, queue: Queue) -> None:
    queue.submit()
    first = queue.claim("first")
    queue.expire_lease(first)
    second = queue.claim("second")

    assert succeed(engine, second, stored_result("second"))
    assert not succeed(engine, first, stored_result("first"))
    assert queue.stored(first).result == stored_result("second")


def test_the_same_worker_is_fenced_from_its_own_earlier_attempt(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    first = queue.claim("one")
    queue.expire_lease(first)
    second = queue.claim("one")

    assert not succeed(engine, first, RESULT)
    assert succeed(engine, second, RESULT)


def test_of_two_attempts_that_publish_at_the_same_moment_one_does(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    attempts = [queue.claim()]
    for _ in range(2):
        queue.expire_lease(attempts[-1])
        attempts.append(queue.claim())
    barrier = Barrier(3)

    def publish(job: Job) -> bool:
        barrier.wait()
        return succeed(engine, job, stored_result(f"a{job.attempt}"))

    with ThreadPoolExecutor(3) as pool:
        published = list(pool.map(publish, attempts))

    assert published == [False, False, True]
    assert queue.stored(attempts[0]).result == stored_result("a3")
    assert queue.states(attempts[0]).count("succeeded") == 1


def test_a_heartbeat_renews_the_lease_and_records_progress(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    queue.set_columns(job, lease_until=1000.0)

    answer = queue.heartbeat(job)

    kept = queue.stored(job)
    assert answer == "ok"
    assert (kept.done, kept.total, kept.bad, kept.rate) == (5, 10, 1, 2.5)
    assert claim(engine, "other", "cpu", LEASE) is None


@pytest.mark.parametrize("rate", [None, float("nan"), float("inf")])
def test_a_rate_that_is_no_number_is_left_out(
    engine: Engine, queue: Queue, rate: float | None
) -> None:
    queue.submit()
    job = queue.claim()

    heartbeat(engine, job, LEASE, Progress(done=0, total=None, bad=0, rate=rate))

    assert queue.stored(job).rate is None
    assert events_after(engine, job.id, 0, 100)[-1].data["rate"] is None


def test_the_heartbeat_reports_a_cancellation(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    request_cancel(engine, "owner", job.id)

    answer = queue.heartbeat(job)

    assert answer == "cancel"
    assert cancelled(engine, job)
    ended = queue.stored(job)
    assert (ended.state, ended.lease_until) == ("cancelled", None)
    assert queue.states(job) == ["queued", "running", "running", "cancelled"]


def test_a_result_that_is_ready_before_the_cancellation_is_published(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    job = queue.claim()
    request_cancel(engine, "owner", job.id)

    assert succeed(engine, job, RESULT)
    assert queue.stored(job).state == "succeeded"


def test_a_job_to_cancel_ends_when_its_lease_expires(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    request_cancel(engine, "owner", job.id)
    queue.expire_lease(job)

    assert claim(engine, "other", "cpu", LEASE) is None
    assert queue.stored(job).state == "cancelled"
