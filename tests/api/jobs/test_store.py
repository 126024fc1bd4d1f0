"""Jobs as their owners see them, on SQLite and PostgreSQL."""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, func, select

from api.jobs.queue import Progress, claim, fail, heartbeat, succeed
from api.jobs.store import (
    Job,
    SubmitLimits,
    counts,
    delete_job,
    events_after,
    expired_jobs,
    get_job,
    list_jobs,
    oldest_queued_age,
    request_cancel,
    submit,
)
from api.storage.database import write_transaction
from api.storage.tables import EVENTS, JOBS

LIMITS = SubmitLimits(max_queued=100, max_attempts=3)
REQUEST = {"dataset": {"root": "photos", "path": "träin"}, "seed": 1}
HALFWAY = Progress(done=5, total=10, bad=1, rate=2.5)
NO_IDS = ["", "0" * 26, "\0", "\udcff", "' OR 1=1 --"]


def submitted(engine: Engine, owner: str = "owner", key: str | None = None) -> Job:
    return submit(engine, owner, REQUEST, key, LIMITS)[0]


def claimed(engine: Engine, worker: str = "worker") -> Job:
    job = claim(engine, worker, "cpu", 3600)
    assert job is not None
    return job


def finished(engine: Engine, owner: str = "owner") -> Job:
    submitted(engine, owner)
    job = claimed(engine)
    assert succeed(engine, job, {"prefix": "jobs"})
    return job


def set_columns(engine: Engine, job: Job, **columns: Any) -> None:  # noqa: ANN401 - of any type
    with write_transaction(engine) as connection:
        connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(columns))


def events_of(engine: Engine, job: Job) -> list[tuple[str, Mapping[str, Any]]]:
    return [(event.kind, event.data) for event in events_after(engine, job.id, 0, 1000)]


def test_another_owner_sees_nothing_of_a_job(engine: Engine) -> None:
    waiting = submitted(engine)
    done = finished(engine, "owner")

    for job in (waiting, done):
        assert get_job(engine, "other", job.id) is None
        assert request_cancel(engine, "other", job.id) is None
        assert delete_job(engine, "other", job.id) is None
    assert list_jobs(engine, "other", limit=10) == []
    assert {job.state for job in list_jobs(engine, "owner", limit=10)} == {"queued", "succeeded"}


def test_an_owner_without_a_key_is_not_everybody(engine: Engine) -> None:
    job = submitted(engine, "owner")

    assert get_job(engine, "", job.id) is None
    assert list_jobs(engine, "", limit=10) == []


def test_who_asks_for_no_owner_sees_all_jobs(engine: Engine) -> None:
    jobs = [submitted(engine, owner) for owner in ("one", "two")]

    assert {job.id for job in list_jobs(engine, None, limit=10)} == {job.id for job in jobs}
    assert get_job(engine, None, jobs[0].id) == jobs[0]


@pytest.mark.parametrize("job_id", NO_IDS)
def test_what_is_not_there_is_answered_with_nothing(engine: Engine, job_id: str) -> None:
    assert get_job(engine, "owner", job_id) is None
    assert request_cancel(engine, "owner", job_id) is None
    assert delete_job(engine, "owner", job_id) is None
    assert events_after(engine, job_id, 0, 10) == []


def test_cancelling_a_job_that_waits_is_immediate(engine: Engine) -> None:
    job = submitted(engine)

    cancelled = request_cancel(engine, "owner", job.id)

    assert cancelled is not None
    assert cancelled.state == "cancelled"
    assert cancelled.finished_at is not None
    assert claim(engine, "worker", "cpu", 3600) is None
    assert events_of(engine, job)[-1] == ("state", {"state": "cancelled"})


def test_cancelling_a_job_that_runs_asks_its_worker(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)

    asked = request_cancel(engine, "owner", job.id)

    assert asked is not None
    assert (asked.state, asked.cancel_requested) == ("running", True)
    assert heartbeat(engine, job, 3600, HALFWAY) == "cancel"


def test_cancelling_a_job_whose_worker_fell_silent_is_immediate(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    set_columns(engine, job, lease_until=1.0)

    cancelled = request_cancel(engine, "owner", job.id)

    assert cancelled is not None
    assert cancelled.state == "cancelled"
    assert heartbeat(engine, job, 3600, HALFWAY) == "lost"
    assert not succeed(engine, job, {"prefix": "jobs"})


def test_cancelling_again_changes_nothing(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    first = request_cancel(engine, "owner", job.id)
    events = events_of(engine, job)

    assert request_cancel(engine, "owner", job.id) == first
    assert events_of(engine, job) == events


def test_cancelling_a_finished_job_leaves_it(engine: Engine) -> None:
    job = finished(engine)

    left = request_cancel(engine, "owner", job.id)

    assert left is not None
    assert (left.state, left.cancel_requested) == ("succeeded", False)


def test_a_finished_job_is_deleted_with_its_events(engine: Engine) -> None:
    job = finished(engine)
    other = submitted(engine)

    deleted = delete_job(engine, "owner", job.id)

    assert deleted is not None
    assert (deleted.id, deleted.result) == (job.id, {"prefix": "jobs"})
    assert get_job(engine, "owner", job.id) is None
    with engine.connect() as connection:
        assert connection.execute(select(EVENTS.c.job)).scalars().all() == [other.id]


def test_a_job_that_is_not_finished_cannot_be_deleted(engine: Engine) -> None:
    job = submitted(engine)
    assert delete_job(engine, "owner", job.id) is None

    claimed(engine)

    assert delete_job(engine, "owner", job.id) is None
    assert get_job(engine, "owner", job.id) is not None


def test_a_worker_that_still_runs_a_deleted_job_has_lost_it(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    set_columns(engine, job, lease_until=1.0)
    request_cancel(engine, "owner", job.id)
    delete_job(engine, "owner", job.id)

    assert heartbeat(engine, job, 3600, HALFWAY) == "lost"
    assert not succeed(engine, job, {"prefix": "jobs"})
    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(EVENTS)).scalar_one() == 0


def test_events_tell_a_job_in_order_and_go_on_after_any_of_them(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)
    heartbeat(engine, job, 3600, HALFWAY)
    succeed(engine, job, {"prefix": "jobs"})

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


def test_events_of_other_jobs_are_not_among_them(engine: Engine) -> None:
    one, two = submitted(engine), submitted(engine)
    request_cancel(engine, "owner", one.id)

    assert events_of(engine, two) == [("state", {"state": "queued"})]


def test_who_reads_on_from_the_last_event_misses_none_that_others_write(engine: Engine) -> None:
    submitted(engine)
    job = claimed(engine)

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


def test_jobs_expire_by_when_they_finished(engine: Engine) -> None:
    oldest, old, young = (finished(engine) for _ in range(3))
    waiting = submitted(engine)
    set_columns(engine, oldest, finished_at=1000.0)
    set_columns(engine, old, finished_at=2000.0)
    set_columns(engine, waiting, created_at=1000.0)

    assert [job.id for job in expired_jobs(engine, 3600)] == [oldest.id, old.id]
    assert [job.id for job in expired_jobs(engine, 3600, limit=1)] == [oldest.id]
    assert young.id not in {job.id for job in expired_jobs(engine, 3600)}


def test_counts_name_every_state(engine: Engine) -> None:
    finished(engine)
    for _ in range(2):
        submitted(engine)

    assert counts(engine) == {
        "queued": 2,
        "running": 0,
        "succeeded": 1,
        "failed": 0,
        "cancelled": 0,
    }


def test_the_oldest_age_is_that_of_the_job_that_waits_longest(engine: Engine) -> None:
    old, _ = submitted(engine), submitted(engine)
    set_columns(engine, old, run_after=old.run_after - 7200)

    age = oldest_queued_age(engine)

    assert age is not None
    assert 7200 <= age < 10800


def test_there_is_no_oldest_age_where_nothing_may_be_claimed(engine: Engine) -> None:
    assert oldest_queued_age(engine) is None

    submitted(engine)
    fail(engine, claimed(engine), {"type": "disk-full", "detail": "full"}, retry_in=3600)

    assert oldest_queued_age(engine) is None
