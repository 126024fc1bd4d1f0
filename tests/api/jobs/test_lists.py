"""Lists of jobs, page by page, on SQLite and PostgreSQL."""

import pytest
from sqlalchemy import Engine

from api.jobs.store import (
    Cursor,
    Job,
    begin_deletion,
    end_deletion,
    list_jobs,
    request_cancel,
)
from tests.api.jobs.jobs_queue import Queue

NO_IDS = ["", "0" * 26, "\0", "\udcff", "' OR 1=1 --"]


def test_jobs_are_listed_newest_first(engine: Engine, queue: Queue) -> None:
    jobs = [queue.submit() for _ in range(5)]

    listed = list_jobs(engine, "owner", limit=10)

    assert listed == sorted(jobs, key=lambda job: (job.created_at, job.id), reverse=True)


def test_pages_hold_each_job_once_while_new_jobs_come_and_old_ones_go(
    engine: Engine, queue: Queue
) -> None:
    # Of one moment, two by two, so that only their ids keep them in order.
    jobs = [queue.submit() for _ in range(8)]
    for place, job in enumerate(jobs):
        queue.set_columns(job, created_at=1000.5 + place // 2)
    expected = sorted(jobs, key=lambda job: (jobs.index(job) // 2, job.id), reverse=True)

    pages: list[list[Job]] = []
    before = None
    while page := list_jobs(engine, "owner", limit=3, before=before):
        pages.append(page)
        before = Cursor(page[-1].created_at, page[-1].id)
        queue.submit()
        request_cancel(engine, "owner", page[-1].id)
        begin_deletion(engine, "owner", page[-1].id)
        end_deletion(engine, page[-1].id)

    assert [len(page) for page in pages] == [3, 3, 2]
    assert [job.id for page in pages for job in page] == [job.id for job in expected]


def test_jobs_are_listed_by_state(engine: Engine, queue: Queue) -> None:
    done = queue.finish()
    waiting = queue.submit()

    assert [job.id for job in list_jobs(engine, "owner", state="queued", limit=9)] == [waiting.id]
    assert [job.id for job in list_jobs(engine, "owner", state="succeeded", limit=9)] == [done.id]


@pytest.mark.parametrize("job_id", NO_IDS)
def test_a_cursor_of_no_job_gives_a_page(engine: Engine, queue: Queue, job_id: str) -> None:
    job = queue.submit()

    page = list_jobs(engine, "owner", limit=9, before=Cursor(job.created_at + 1, job_id))

    assert page == [job]
