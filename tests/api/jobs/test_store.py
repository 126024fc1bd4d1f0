"""The jobs of an owner, on SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Engine, func, select

from api.jobs.queue import Progress, claim, fail, heartbeat, succeed
from api.jobs.store import (
    begin_deletion,
    counts,
    end_deletion,
    events_after,
    expired_jobs,
    get_job,
    jobs_to_delete,
    list_jobs,
    oldest_queued_age,
    request_cancel,
)
from api.storage.tables import EVENTS
from difficulty_service.bodies.jobs import JobError
from tests.api.jobs.jobs_queue import Queue
from tests.api.stored_results import stored_result

NO_IDS = ["", "0" * 26, "\0", "\udcff", "' OR 1=1 --"]


def test_another_owner_sees_nothing_of_a_job(engine: Engine, queue: Queue) -> None:
    waiting = queue.submit()
    done = queue.finish("owner")

    for job in (waiting, done):
        assert get_job(engine, "other", job.id) is None
        assert request_cancel(engine, "other", job.id) is None
        assert not begin_deletion(engine, "other", job.id)
    assert list_jobs(engine, "other", limit=10) == []
    assert {job.state for job in list_jobs(engine, "owner", limit=10)} == {"queued", "succeeded"}


def test_an_owner_without_a_key_is_not_everybody(engine: Engine, queue: Queue) -> None:
    job = queue.submit("owner")

    assert get_job(engine, "", job.id) is None
    assert list_jobs(engine, "", limit=10) == []


def test_without_an_owner_all_jobs_are_listed(engine: Engine, queue: Queue) -> None:
    jobs = [queue.submit(owner) for owner in ("one", "two")]

    assert {job.id for job in list_jobs(engine, None, limit=10)} == {job.id for job in jobs}
    assert get_job(engine, None, jobs[0].id) == jobs[0]


@pytest.mark.parametrize("job_id", NO_IDS)
def test_a_missing_job_is_none(engine: Engine, job_id: str) -> None:
    assert get_job(engine, "owner", job_id) is None
    assert request_cancel(engine, "owner", job_id) is None
    assert not begin_deletion(engine, "owner", job_id)
    assert events_after(engine, job_id, 0, 10) == []


def test_cancelling_a_job_that_waits_is_immediate(engine: Engine, queue: Queue) -> None:
    job = queue.submit()

    cancelled = request_cancel(engine, "owner", job.id)

    assert cancelled is not None
    assert cancelled.state == "cancelled"
    assert cancelled.finished_at is not None
    assert claim(engine, "worker", "cpu", 3600) is None
    assert queue.events(job)[-1] == ("state", {"state": "cancelled"})


def test_cancelling_a_job_that_runs_asks_its_worker(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()

    asked = request_cancel(engine, "owner", job.id)

    assert asked is not None
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert queue.heartbeat(job) == "cancel"


def test_cancelling_a_job_with_an_expired_lease_is_immediate(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    queue.set_columns(job, lease_until=1.0)

    cancelled = request_cancel(engine, "owner", job.id)

    assert cancelled is not None
    assert cancelled.state == "cancelled"
    assert queue.heartbeat(job) == "lost"
    assert not succeed(engine, job, stored_result())


def test_cancelling_again_changes_nothing(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    first = request_cancel(engine, "owner", job.id)
    events = queue.events(job)

    assert request_cancel(engine, "owner", job.id) == first
    assert queue.events(job) == events


def test_cancelling_a_finished_job_leaves_it(engine: Engine, queue: Queue) -> None:
    job = queue.finish()

    left = request_cancel(engine, "owner", job.id)

    assert left is not None
    assert (left.state, left.cancel_requested) == ("succeeded", False)


def test_a_finished_job_is_deleted_with_its_events(engine: Engine, queue: Queue) -> None:
    job = queue.finish()
    other = queue.submit()

    assert begin_deletion(engine, "owner", job.id)
    end_deletion(engine, job.id)

    assert get_job(engine, "owner", job.id) is None
    assert jobs_to_delete(engine) == []
    with engine.connect() as connection:
        assert connection.execute(select(EVENTS.c.job)).scalars().all() == [other.id]


def test_a_job_that_is_being_deleted_is_gone_for_every_client(engine: Engine, queue: Queue) -> None:
    job = queue.finish()

    assert begin_deletion(engine, "owner", job.id)

    assert get_job(engine, None, job.id) is None
    assert list_jobs(engine, None, limit=10) == []
    assert request_cancel(engine, "owner", job.id) is None
    assert not begin_deletion(engine, "owner", job.id)
    assert set(counts(engine).values()) == {0}
    assert expired_jobs(engine, -3600.0) == []
    assert jobs_to_delete(engine) == [job.id]


def test_a_job_that_nobody_deletes_keeps_its_row(engine: Engine, queue: Queue) -> None:
    job = queue.finish()

    end_deletion(engine, job.id)

    assert get_job(engine, "owner", job.id) is not None


def test_a_job_that_is_not_finished_cannot_be_deleted(engine: Engine, queue: Queue) -> None:
    job = queue.submit()
    assert not begin_deletion(engine, "owner", job.id)

    queue.claim()

    assert not begin_deletion(engine, "owner", job.id)
    assert get_job(engine, "owner", job.id) is not None


def test_a_worker_that_still_runs_a_deleted_job_has_lost_it(engine: Engine, queue: Queue) -> None:
    queue.submit()
    job = queue.claim()
    queue.set_columns(job, lease_until=1.0)
    request_cancel(engine, "owner", job.id)
    assert begin_deletion(engine, "owner", job.id)
    end_deletion(engine, job.id)

    assert queue.heartbeat(job) == "lost"
    assert not succeed(engine, job, stored_result())
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(EVENTS)).scalar_one() == 0


def test_events_are_in_order_and_can_be_read_after_any_of_them(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    job = queue.claim()
    queue.heartbeat(job)
    succeed(engine, job, stored_result())

    events = events_after(engine, job.id, 0, 100)

    progress = {"done": 5, "total": 10, "bad": 1, "rate": 2.5}
    assert [(event.kind, event.data) for event in events] == [
        ("state", {"state": "queued"}),
        ("state", {"state": "running", "attempt": 1, "device": "cpu"}),
        ("progress", progress),
        ("state", {"state": "succeeded"}),
    ]
    ids = [event.id for event in events]
    assert ids == sorted(set(ids))
    for place, event in enumerate(events):
        assert events_after(engine, job.id, event.id, 100) == events[place + 1 :]
    assert events_after(engine, job.id, 0, 2) == events[:2]


def test_events_of_other_jobs_are_not_among_them(engine: Engine, queue: Queue) -> None:
    one, two = queue.submit(), queue.submit()
    request_cancel(engine, "owner", one.id)

    assert queue.events(two) == [("state", {"state": "queued"})]


def test_a_reader_who_resumes_after_the_last_event_misses_none(
    engine: Engine, queue: Queue
) -> None:
    queue.submit()
    job = queue.claim()

    def record_heartbeat(done: int) -> None:
        heartbeat(engine, job, 3600, Progress(done, 40, 0, None))

    seen: list[int] = []
    with ThreadPoolExecutor(4) as pool:
        beats = [pool.submit(record_heartbeat, done) for done in range(40)]
        while True:
            all_written = all(each.done() for each in beats)
            new = events_after(engine, job.id, seen[-1] if seen else 0, 7)
            seen += [event.id for event in new]
            if all_written and not new:
                break

    for each in beats:
        each.result()
    assert seen == [event.id for event in events_after(engine, job.id, 0, 1000)]
    assert len(seen) == 42


def test_jobs_expire_by_when_they_finished(engine: Engine, queue: Queue) -> None:
    oldest, old, young = (queue.finish() for _ in range(3))
    waiting = queue.submit()
    queue.set_columns(oldest, finished_at=1000.0)
    queue.set_columns(old, finished_at=2000.0)
    queue.set_columns(waiting, created_at=1000.0)

    assert [job.id for job in expired_jobs(engine, 3600)] == [oldest.id, old.id]
    assert [job.id for job in expired_jobs(engine, 3600, limit=1)] == [oldest.id]
    assert young.id not in {job.id for job in expired_jobs(engine, 3600)}


def test_counts_name_every_state(engine: Engine, queue: Queue) -> None:
    queue.finish()
    for _ in range(2):
        queue.submit()

    assert counts(engine) == {
        "queued": 2,
        "running": 0,
        "succeeded": 1,
        "failed": 0,
        "cancelled": 0,
    }


def test_the_oldest_age_is_that_of_the_job_that_waits_longest(engine: Engine, queue: Queue) -> None:
    old, _ = queue.submit(), queue.submit()
    queue.set_columns(old, run_after=old.run_after - 7200)

    age = oldest_queued_age(engine)

    assert age is not None
    assert 7200 <= age < 10800


def test_there_is_no_oldest_age_where_nothing_may_be_claimed(engine: Engine, queue: Queue) -> None:
    assert oldest_queued_age(engine) is None

    queue.submit()
    fail(engine, queue.claim(), JobError(type="disk-full", detail="full"), retry_in=3600)

    assert oldest_queued_age(engine) is None
