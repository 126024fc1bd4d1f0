"""Tables of columns are recorded with their job, replaced by name, and go with it."""

import pytest
from sqlalchemy import Engine, func, select

from api.http.problems import Problem
from api.jobs.columns import (
    MOST_TABLES,
    AttachedTable,
    attach,
    attached_tables,
    detach,
)
from api.jobs.joined_table import JoinedColumn, JoinedTable
from api.jobs.store import begin_deletion, end_deletion
from api.storage.tables import JOB_COLUMNS
from difficulty_service.reports.joined_tables import MOST_COLUMNS
from tests.api.jobs.jobs_queue import Queue


def table(name: str, version: str, *columns: str) -> AttachedTable:
    joined = tuple(JoinedColumn(name=column, kind="text") for column in columns)
    return AttachedTable(name, version, JoinedTable(columns=joined, notes=("é \0 \ud800",)))


def versions(engine: Engine, job_id: str) -> dict[str, str]:
    return {each.name: each.version for each in attached_tables(engine, job_id)}


def test_tables_keep_their_order_and_one_of_the_same_name_is_replaced(
    engine: Engine, queue: Queue
) -> None:
    job = queue.finish()
    first, _ = attach(engine, job.id, table("b.csv", "1", "camera"))
    attach(engine, job.id, table("a.csv", "2", "date"))

    replacing, replaced = attach(engine, job.id, table("b.csv", "3", "\ud800\0", "x" * 300))
    again = attach(engine, job.id, replacing)

    assert replaced == first
    assert again == (replacing, None)
    assert attached_tables(engine, job.id)[0] == replacing
    assert versions(engine, job.id) == {"b.csv": "3", "a.csv": "2"}
    assert replacing.attached_at == first.attached_at
    assert detach(engine, job.id, "b.csv") == "3"
    assert detach(engine, job.id, "b.csv") is None
    assert versions(engine, job.id) == {"a.csv": "2"}


def test_a_job_has_a_bounded_number_of_tables_and_columns(engine: Engine, queue: Queue) -> None:
    job = queue.finish()
    names = [f"c{number}" for number in range(MOST_COLUMNS)]
    attach(engine, job.id, table("a.csv", "1", *names))

    with pytest.raises(Problem, match="40 columns of other tables, with the 1 of b"):
        attach(engine, job.id, table("b.csv", "2", "one"))
    attach(engine, job.id, table("a.csv", "3", *reversed(names)))
    for number in range(1, MOST_TABLES):
        attach(engine, job.id, table(f"{number}.csv", "4"))
    with pytest.raises(Problem, match="has 20 tables already"):
        attach(engine, job.id, table("one more.csv", "5"))

    assert len(versions(engine, job.id)) == MOST_TABLES


def test_tables_go_with_their_job_and_none_is_attached_to_one_that_is_gone(
    engine: Engine, queue: Queue
) -> None:
    job = queue.finish()
    attach(engine, job.id, table("a.csv", "1", "camera"))
    assert begin_deletion(engine, "owner", job.id)

    with pytest.raises(Problem, match="there is no job"):
        attach(engine, job.id, table("b.csv", "2", "date"))
    end_deletion(engine, job.id)

    with engine.connect() as connection:
        number = select(func.count()).select_from(JOB_COLUMNS)
        assert connection.execute(number).scalar_one() == 0
