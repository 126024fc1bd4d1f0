"""Tables with columns beside the scores that people attach to finished jobs, one row for each.

What was joined of a table is a file of the job (`api.jobs.files.joined_key`), which never changes:
a table that is attached again has another version.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, Connection, Engine, delete, insert, select, update

from api.http.problems import conflict, not_found
from api.jobs.joined_table import JoinedTable
from api.jobs.store import encode
from api.storage.database import now, retry, write_transaction
from api.storage.space import makes_room
from api.storage.tables import JOB_COLUMNS, JOBS
from difficulty_service.base.wording import count_of
from difficulty_service.reports.joined_tables import MOST_COLUMNS

MOST_TABLES = 20
"""Number of tables that a job may have."""


@dataclass(frozen=True)
class AttachedTable:
    """A table that is attached to a job."""

    name: str  # name of its file
    version: str  # id of what was joined of it
    joined: JoinedTable
    attached_at: float = 0.0  # when a table of this name was attached first, in seconds since 1970


def attached_tables(engine: Engine, job_id: str) -> Sequence[AttachedTable]:
    """The tables of a job, those attached first coming first."""
    with engine.connect() as connection:
        return _tables(connection, job_id)


def _tables(connection: Connection, job_id: str) -> list[AttachedTable]:
    query = select(JOB_COLUMNS).where(JOB_COLUMNS.c.job == job_id)
    rows = connection.execute(query.order_by(JOB_COLUMNS.c.attached_at, JOB_COLUMNS.c.name))
    return [
        AttachedTable(
            row.name, row.version, JoinedTable.of(json.loads(row.joined)), row.attached_at
        )
        for row in rows
    ]


@retry
def attach(
    engine: Engine, job_id: str, table: AttachedTable
) -> tuple[AttachedTable, AttachedTable | None]:
    """Records a table of a job; gives it, and the one of the same name that it replaces.

    Raises:
        Problem: The job has too many tables or columns already, or is gone.
    """
    with write_transaction(engine) as connection:
        # One transaction after the other for each job.
        job = select(JOBS.c.id).where(JOBS.c.id == job_id, JOBS.c.state == "succeeded")
        if connection.execute(job.with_for_update()).one_or_none() is None:
            raise not_found("job", job_id)
        present = {each.name: each for each in _tables(connection, job_id)}
        before = present.pop(table.name, None)
        _require_room(list(present.values()), table)
        at = now(connection) if before is None else before.attached_at
        values = {
            "job": job_id,
            "name": table.name,
            "version": table.version,
            "joined": encode(table.joined.to_json()),
            "attached_at": at,
        }
        _leave_uncounted(connection, job_id)
        connection.execute(delete(JOB_COLUMNS).where(_is(job_id, table.name)))
        connection.execute(insert(JOB_COLUMNS).values(values))
    # The same where the confirmation of a first try was lost.
    is_same = before is not None and before.version == table.version
    return replace(table, attached_at=at), None if is_same else before


def _require_room(others: Sequence[AttachedTable], table: AttachedTable) -> None:
    if len(others) >= MOST_TABLES:
        raise conflict(
            f"the job has {MOST_TABLES} tables already", "remove one, or join them first", "table"
        )
    taken, number = sum(len(each.joined.columns) for each in others), len(table.joined.columns)
    if taken + number > MOST_COLUMNS:
        raise conflict(
            f"the job has {count_of(taken, 'column')} of other tables, with the {number} of "
            f"{table.name} they would be more than {MOST_COLUMNS}",
            "name the columns that are to be shown, or remove a table",
            "column",
        )


@retry
@makes_room
def detach(engine: Engine, job_id: str, name: str) -> str | None:
    """Forgets a table of a job; gives its version, None where there is none."""
    with write_transaction(engine) as connection:
        _leave_uncounted(connection, job_id)
        removed = delete(JOB_COLUMNS).where(_is(job_id, name)).returning(JOB_COLUMNS.c.version)
        return connection.execute(removed).scalar_one_or_none()


def _leave_uncounted(connection: Connection, job_id: str) -> None:
    """Has the files of a job counted again, whatever happens to this process."""
    connection.execute(update(JOBS).where(JOBS.c.id == job_id).values(stored_bytes=None))


def _is(job_id: str, name: str) -> ColumnElement[bool]:
    return (JOB_COLUMNS.c.job == job_id) & (JOB_COLUMNS.c.name == name)
