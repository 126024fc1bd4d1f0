"""Jobs as their owners see them: submitted, listed, watched, cancelled, deleted."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Select,
    delete,
    func,
    insert,
    select,
    text,
    tuple_,
    update,
)

from api.jobs.rows import Event as Event
from api.jobs.rows import Job as Job
from api.jobs.rows import add_event, encode, finish, job_of
from api.storage.database import now, retry, write_transaction
from api.storage.identifiers import is_id, new_id
from api.storage.tables import EVENTS, FINAL_STATES, JOBS, STATES

# With the owner's hash, the name of the lock that lets one submission of an owner in at a time.
SUBMISSION_LOCK = 0x0D1FF1D
FINISHED_AT_ONCE = 100


@dataclass(frozen=True)
class Cursor:
    """The last job of a page; the next page begins with the next older one."""

    created_at: float
    id: str


@dataclass(frozen=True)
class SubmitLimits:
    """What an owner may ask for.

    Attributes:
        max_queued: Jobs that may wait at a time.
        max_attempts: Of one job.
    """

    max_queued: int
    max_attempts: int


class IdempotencyConflict(Exception):
    """The key was used before, with another request; the message names the job."""


class TooManyJobs(Exception):
    """As many jobs of this owner are waiting as may."""


def submit(
    engine: Engine,
    owner: str,
    request: Mapping[str, Any],
    idempotency_key: str | None,
    limits: SubmitLimits,
) -> tuple[Job, bool]:
    """Queues a job, unless one with this idempotency key is there already.

    Args:
        engine: The database.
        owner: Id of the key that asks.
        request: As validated; JSON values.
        idempotency_key: At most 200 characters, none of them NUL.
        limits: What an owner may ask for.

    Returns:
        The job, and whether it is new.

    Raises:
        IdempotencyConflict: The idempotency key belongs to a job with another request.
        TooManyJobs: The owner has `limits.max_queued` jobs waiting.
    """
    body = encode(request)
    values = {
        "id": new_id(),
        "owner": owner,
        "state": "queued",
        "request": body,
        "request_sha256": hashlib.sha256(body.encode()).hexdigest(),
        "idempotency_key": idempotency_key,
        "max_attempts": limits.max_attempts,
    }
    job = _queue(engine, values, limits.max_queued)
    if job.request_sha256 != values["request_sha256"]:
        raise IdempotencyConflict(
            f"idempotency key {idempotency_key!r} belongs to job {job.id}, whose request is another"
        )
    return job, job.id == values["id"]


@retry
def _queue(engine: Engine, values: Mapping[str, Any], max_queued: int) -> Job:
    """Writes the job, or finds the one that was written before under its key or its id."""
    with write_transaction(engine) as connection:
        _let_one_in(connection, values["owner"])
        row = connection.execute(select(JOBS).where(_same(values))).one_or_none()
        if row is None:
            _check_queue(connection, values["owner"], max_queued)
            times = dict.fromkeys(("created_at", "run_after"), now(connection))
            queued = insert(JOBS).values({**values, **times}).returning(*JOBS.c)
            row = connection.execute(queued).one()
            add_event(connection, row.id, "state", {"state": "queued"})
        return job_of(row)


def get_job(engine: Engine, owner: str | None, job_id: str) -> Job | None:
    """The job, or None if there is none or it belongs to another; owner None sees all."""
    if not is_id(job_id):
        return None
    with engine.connect() as connection:
        row = connection.execute(select(JOBS).where(_is(owner, job_id))).one_or_none()
    return None if row is None else job_of(row)


def list_jobs(
    engine: Engine,
    owner: str | None,
    *,
    state: str | None = None,
    limit: int,
    before: Cursor | None = None,
) -> list[Job]:
    """At most `limit` jobs, newest first, older than `before`; owner None sees all."""
    query = select(JOBS).order_by(JOBS.c.created_at.desc(), JOBS.c.id.desc()).limit(limit)
    if owner is not None:
        query = query.where(JOBS.c.owner == owner)
    if state is not None:
        query = query.where(JOBS.c.state == state)
    if before is not None:
        last = (before.created_at, before.id if is_id(before.id) else "")
        query = query.where(tuple_(JOBS.c.created_at, JOBS.c.id) < last)
    return _jobs(engine, query)


@retry
def request_cancel(engine: Engine, owner: str | None, job_id: str) -> Job | None:
    """Cancels a job that waits, asks the worker of one that runs, leaves a finished one.

    Returns:
        The job afterwards; None if there is none or it belongs to another.
    """
    if not is_id(job_id):
        return None
    with write_transaction(engine) as connection:
        query = select(JOBS).where(_is(owner, job_id)).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if row.state in FINAL_STATES:
            return job_of(row)
        at = now(connection)
        # Nobody will answer for a worker whose lease has run out.
        if row.state == "queued" or row.lease_until < at:
            return job_of(finish(connection, row.id, {"state": "cancelled", "cancel_requested": 1}))
        if row.cancel_requested:
            return job_of(row)
        asked = update(JOBS).where(JOBS.c.id == row.id).values(cancel_requested=1)
        row = connection.execute(asked.returning(*JOBS.c)).one()
        add_event(connection, row.id, "state", {"state": "running", "cancel_requested": True})
        return job_of(row)


@retry
def delete_job(engine: Engine, owner: str | None, job_id: str) -> Job | None:
    """Removes a finished job and its events.

    Returns:
        The job as it was; None if there is none that is finished, or it belongs to another.
    """
    if not is_id(job_id):
        return None
    with write_transaction(engine) as connection:
        finished = _is(owner, job_id) & JOBS.c.state.in_(FINAL_STATES)
        removed = delete(JOBS).where(finished).returning(*JOBS.c)
        row = connection.execute(removed).one_or_none()
        return None if row is None else job_of(row)


def events_after(engine: Engine, job_id: str, last_id: int, limit: int) -> list[Event]:
    """At most `limit` events of a job, oldest first, that came after event `last_id`."""
    if not is_id(job_id):
        return []
    # Ids of one job are committed in order, as `add_event` holds the job's row.
    query = (
        select(EVENTS)
        .where(EVENTS.c.job == job_id, EVENTS.c.id > last_id)
        .order_by(EVENTS.c.id)
        .limit(limit)
    )
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    return [Event(row.id, row.at, row.kind, json.loads(row.data)) for row in rows]


def expired_jobs(engine: Engine, older_than: float, limit: int = FINISHED_AT_ONCE) -> list[Job]:
    """At most `limit` jobs that finished more than `older_than` seconds ago, oldest first."""
    with engine.connect() as connection:
        end = now(connection) - older_than
    finished = JOBS.c.state.in_(FINAL_STATES) & (JOBS.c.finished_at < end)
    return _jobs(engine, select(JOBS).where(finished).order_by(JOBS.c.finished_at).limit(limit))


def counts(engine: Engine) -> dict[str, int]:
    """How many jobs there are in each state, zeros included."""
    query = select(JOBS.c.state, func.count().label("number")).group_by(JOBS.c.state)
    with engine.connect() as connection:
        found = {row.state: row.number for row in connection.execute(query)}
    return {state: found.get(state, 0) for state in STATES}


def oldest_queued_age(engine: Engine) -> float | None:
    """Seconds that the job waits which has waited longest; None if none may be claimed.

    A job that is to be repeated waits from when it may be.
    """
    query = select(func.min(JOBS.c.run_after)).where(JOBS.c.state == "queued")
    with engine.connect() as connection:
        since = connection.execute(query).scalar_one()
        age = None if since is None else now(connection) - since
    return age if age is not None and age >= 0 else None


def _is(owner: str | None, job_id: str) -> ColumnElement[bool]:
    condition = JOBS.c.id == job_id
    return condition if owner is None else condition & (JOBS.c.owner == owner)


def _jobs(engine: Engine, query: Select[Any]) -> list[Job]:
    with engine.connect() as connection:
        return [job_of(row) for row in connection.execute(query)]


def _let_one_in(connection: Connection, owner: str) -> None:
    """Holds other submissions of this owner back; a write transaction of SQLite holds all."""
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(:lock, hashtext(:owner))")
        connection.execute(lock, {"lock": SUBMISSION_LOCK, "owner": owner})


def _same(values: Mapping[str, Any]) -> ColumnElement[bool]:
    """The job itself, where the answer to its commit was lost, or one of its idempotency key."""
    condition = JOBS.c.id == values["id"]
    if values["idempotency_key"] is None:
        return condition
    return condition | (
        (JOBS.c.owner == values["owner"]) & (JOBS.c.idempotency_key == values["idempotency_key"])
    )


def _check_queue(connection: Connection, owner: str, max_queued: int) -> None:
    waiting = select(func.count()).where(JOBS.c.owner == owner, JOBS.c.state == "queued")
    if (number := connection.execute(waiting).scalar_one()) >= max_queued:
        raise TooManyJobs(f"{number} jobs are waiting, {max_queued} may")
