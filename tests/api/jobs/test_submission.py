"""Jobs are submitted once, whatever is repeated, on SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from sqlalchemy import Engine

from api.jobs.queue import succeed
from api.jobs.store import (
    IdempotencyConflict,
    Job,
    SubmitLimits,
    TooManyJobs,
    begin_deletion,
    counts,
    get_job,
    request_cancel,
    submit,
)
from tests.api.jobs.jobs_queue import Queue
from tests.api.stored_results import stored_result

LIMITS = SubmitLimits(max_queued=100, max_attempts=3)
REQUEST = {"dataset": {"root": "photos", "path": "träin"}, "seed": 1}


def test_a_submitted_job_waits_with_its_request(engine: Engine, queue: Queue) -> None:
    job, created = submit(engine, "owner", REQUEST, None, LIMITS)

    assert created
    assert get_job(engine, "owner", job.id) == job
    assert (job.state, job.request, job.attempt, job.max_attempts) == ("queued", REQUEST, 0, 3)
    assert job.run_after == job.created_at
    assert queue.events(job) == [("state", {"state": "queued"})]


@pytest.mark.parametrize("name", ["\0", "\ud800", "snow \u2603"])
def test_a_request_may_hold_any_text(engine: Engine, name: str) -> None:
    job, _ = submit(engine, "owner", {"dataset": {"path": name}}, None, LIMITS)

    read = get_job(engine, "owner", job.id)

    assert read is not None
    assert read.request == {"dataset": {"path": name}}


def test_the_same_key_and_request_give_the_same_job(engine: Engine) -> None:
    first, _ = submit(engine, "owner", REQUEST, "key", LIMITS)

    second, created = submit(engine, "owner", dict(reversed(REQUEST.items())), "key", LIMITS)

    assert not created
    assert second == first
    assert counts(engine)["queued"] == 1


def test_the_same_key_gives_the_job_in_its_present_state(engine: Engine, queue: Queue) -> None:
    queue.submit(key="key", request=REQUEST)
    job = queue.claim()
    succeed(engine, job, stored_result())

    again, created = submit(engine, "owner", REQUEST, "key", LIMITS)

    assert not created
    assert (again.id, again.state) == (job.id, "succeeded")


def test_the_same_key_with_another_request_is_a_conflict(engine: Engine, queue: Queue) -> None:
    job = queue.submit(key="key", request=REQUEST)

    with pytest.raises(IdempotencyConflict, match=job.id):
        submit(engine, "owner", {**REQUEST, "seed": 2}, "key", LIMITS)

    assert counts(engine)["queued"] == 1


def test_two_owners_may_use_the_same_key(engine: Engine, queue: Queue) -> None:
    one = queue.submit("one", "key", request=REQUEST)

    two, created = submit(engine, "two", {**REQUEST, "seed": 2}, "key", LIMITS)

    assert created
    assert two.id != one.id


def test_requests_without_a_key_are_jobs_of_their_own(queue: Queue) -> None:
    assert queue.submit().id != queue.submit().id


def test_a_key_is_free_again_when_its_job_is_deleted(engine: Engine, queue: Queue) -> None:
    job = queue.submit(key="key", request=REQUEST)
    request_cancel(engine, "owner", job.id)
    begin_deletion(engine, "owner", job.id)

    again, created = submit(engine, "owner", REQUEST, "key", LIMITS)

    assert created
    assert again.id != job.id


def test_submissions_of_one_key_at_the_same_moment_make_one_job(engine: Engine) -> None:
    barrier = Barrier(8)

    def submit_one(_: int) -> tuple[Job, bool]:
        barrier.wait()
        return submit(engine, "owner", REQUEST, "key", LIMITS)

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(submit_one, range(8)))

    assert len({job.id for job, _ in answers}) == 1
    assert [created for _, created in answers].count(True) == 1
    assert counts(engine)["queued"] == 1


def test_no_more_jobs_of_one_owner_wait_than_may(engine: Engine) -> None:
    limits = SubmitLimits(max_queued=2, max_attempts=3)
    for _ in range(2):
        submit(engine, "owner", REQUEST, None, limits)

    with pytest.raises(TooManyJobs, match="2"):
        submit(engine, "owner", REQUEST, None, limits)

    assert submit(engine, "other", REQUEST, None, limits)[1]


def test_a_job_that_runs_leaves_room_in_the_queue(engine: Engine, queue: Queue) -> None:
    limits = SubmitLimits(max_queued=1, max_attempts=3)
    submit(engine, "owner", REQUEST, None, limits)
    queue.claim()

    assert submit(engine, "owner", REQUEST, None, limits)[1]


def test_a_full_queue_still_answers_for_a_key_used_before(engine: Engine) -> None:
    limits = SubmitLimits(max_queued=1, max_attempts=3)
    job, _ = submit(engine, "owner", REQUEST, "key", limits)

    again, created = submit(engine, "owner", REQUEST, "key", limits)

    assert (again.id, created) == (job.id, False)


def test_submissions_at_the_same_moment_do_not_exceed_the_limit(engine: Engine) -> None:
    barrier = Barrier(8)

    def submit_one(_: int) -> bool:
        barrier.wait()
        try:
            submit(engine, "owner", REQUEST, None, SubmitLimits(max_queued=3, max_attempts=3))
        except TooManyJobs:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        accepted = list(pool.map(submit_one, range(8)))

    assert accepted.count(True) == 3
    assert counts(engine)["queued"] == 3
