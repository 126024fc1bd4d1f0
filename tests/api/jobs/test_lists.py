"""Lists of jobs, page by page, on SQLite and PostgreSQL."""

from typing import Any

import pytest
from sqlalchemy import Engine

from api.jobs.queue import claim, succeed
from api.jobs.store import (
    Cursor,
    Job,
    SubmitLimits,
    delete_job,
    list_jobs,
    request_cancel,
    submit,
)
from api.storage.database import write_transaction
from api.storage.tables import JOBS

LIMITS = SubmitLimits(max_queued=100, max_attempts=3)
NO_IDS = ["", "0" * 26, "\0", "\udcff", "' OR 1=1 --"]
REQUEST = {"dataset": {"root": "photos", "path": "träin"}, "seed": 1}


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


def test_jobs_are_listed_newest_first(engine: Engine) -> None:
    jobs = [submitted(engine) for _ in range(5)]

    listed = list_jobs(engine, "owner", limit=10)

    assert listed == sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True)


def test_pages_hold_each_job_once_while_new_jobs_come_and_old_ones_go(engine: Engine) -> None:
    # Of one moment, two by two, so that only their ids keep them in order.
    jobs = [submitted(engine) for _ in range(8)]
    for place, job in enumerate(jobs):
        set_columns(engine, job, created_at=1000.5 + place // 2)
    expected = sorted(jobs, key=lambda job: (jobs.index(job) // 2, job.id), reverse=True)

    pages: list[list[Job]] = []
    before = None
    while page := list_jobs(engine, "owner", limit=3, before=before):
        pages.append(page)
        before = Cursor(page[-1].created_at, page[-1].id)
        submitted(engine)
        request_cancel(engine, "owner", page[-1].id)
        delete_job(engine, "owner", page[-1].id)

    assert [len(page) for page in pages] == [3, 3, 2]
    assert [job.id for page in pages for job in page] == [job.id for job in expected]


def test_a_list_may_be_of_one_state(engine: Engine) -> None:
    done = finished(engine)
    waiting = submitted(engine)

    assert [job.id for job in list_jobs(engine, "owner", state="queued", limit=9)] == [waiting.id]
    assert [job.id for job in list_jobs(engine, "owner", state="succeeded", limit=9)] == [done.id]


@pytest.mark.parametrize("job_id", NO_IDS)
def test_a_cursor_of_no_job_gives_a_page(engine: Engine, job_id: str) -> None:
    job = submitted(engine)

    page = list_jobs(engine, "owner", limit=9, before=Cursor(job.created_at + 1, job_id))

    assert page == [job]
