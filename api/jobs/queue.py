"""Jobs as workers see them: claimed for a while, kept by heartbeats, ended once.

Whoever changes a job names the attempt it was claimed with. Each claim counts the attempt up, so
a worker that was taken for dead finds its job gone, whatever it still tries.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, Connection, Engine, Row, Select, func, select, update

from api.jobs.rows import Job, add_event, encode, finish, job_of
from api.storage.database import now, retry, write_transaction
from api.storage.tables import JOBS


@dataclass(frozen=True)
class Progress:
    """How far a job is.

    Attributes:
        done: Samples.
        total: Samples; None until known.
        bad: Images that could not be read.
        rate: Samples per second; None until known.
    """

    done: int
    total: int | None
    bad: int
    rate: float | None


@retry
def claim(engine: Engine, worker_id: str, device: str, lease: float) -> Job | None:
    """Takes a job whose worker fell silent, or the one that has waited longest.

    Args:
        engine: The database.
        worker_id: Who takes it.
        device: What it runs on, for the job's events.
        lease: Seconds until another may take it, unless `heartbeat` is called before.

    Returns:
        The job, with the attempt that this worker must name from now on; None if none waits.
    """
    with write_transaction(engine) as connection:
        while (row := _next(connection, now(connection))) is not None:
            if row.state == "queued" or not _given_up(connection, row):
                return _take(connection, row, {"worker": worker_id, "device": device}, lease)
    return None


@retry
def heartbeat(
    engine: Engine, job: Job, lease: float, progress: Progress
) -> Literal["ok", "cancel", "lost"]:
    """Keeps a job for another `lease` seconds and writes how far it is.

    Returns:
        "cancel" if its owner wants no more of it, "lost" if it is no longer this worker's.
    """
    rate = progress.rate if progress.rate is not None and math.isfinite(progress.rate) else None
    values = asdict(progress) | {"rate": rate}
    with write_transaction(engine) as connection:
        renewed = _fenced(job, {**values, "lease_until": now(connection) + lease})
        row = connection.execute(renewed).one_or_none()
        if row is None:
            return "lost"
        add_event(connection, job.id, "progress", values)
        return "cancel" if row.cancel_requested else "ok"


@retry
def succeed(engine: Engine, job: Job, result: Mapping[str, Any]) -> bool:
    """Publishes the result; False if the job is no longer this worker's and nothing was done."""
    values = {"state": "succeeded", "result": result, "error": None}
    with write_transaction(engine) as connection:
        # What was done since the last heartbeat is not worth a parameter.
        counted = _fenced(job, {"done": func.coalesce(JOBS.c.total, JOBS.c.done)})
        if connection.execute(counted).one_or_none() is not None:
            finish(connection, job.id, values)
            return True
        return _written_before(connection, job, ["succeeded"], result=encode(result))


@retry
def fail(engine: Engine, job: Job, error: Mapping[str, Any], *, retry_in: float | None) -> bool:
    """Ends an attempt, and the job with it unless it is to be repeated and may be.

    Args:
        engine: The database.
        job: As claimed.
        error: "type" and "detail".
        retry_in: Seconds until the next attempt; None if that would fail as well.

    Returns:
        False if the job is no longer this worker's and nothing was done.
    """
    with write_transaction(engine) as connection:
        row = connection.execute(_locked(job)).one_or_none()
        if row is None:
            ends = ["failed", "cancelled", "queued"]
            return _written_before(connection, job, ends, error=encode(error))
        if row.cancel_requested:
            finish(connection, job.id, {"state": "cancelled", "error": error})
        elif retry_in is None or row.attempt >= row.max_attempts:
            finish(connection, job.id, {"state": "failed", "error": error})
        else:
            _queue_again(connection, job, {"error": encode(error)}, retry_in)
        return True


@retry
def cancelled(engine: Engine, job: Job) -> bool:
    """Ends a job that its owner wants no more of; False if it is no longer this worker's."""
    with write_transaction(engine) as connection:
        if connection.execute(_locked(job)).one_or_none() is None:
            return _written_before(connection, job, ["cancelled"])
        finish(connection, job.id, {"state": "cancelled"})
        return True


@retry
def hand_back(engine: Engine, job: Job) -> bool:
    """Queues a job again that could not be ended in time, without blaming it on the job.

    The attempt stays spent, or the next worker would get the same number and with it the same
    fence; one more is allowed instead.

    Returns:
        False if the job is no longer this worker's and nothing was done.
    """
    with write_transaction(engine) as connection:
        row = connection.execute(_locked(job)).one_or_none()
        if row is None:
            return _written_before(connection, job, ["queued"])
        if row.cancel_requested:
            finish(connection, job.id, {"state": "cancelled"})
        else:
            _queue_again(connection, job, {"max_attempts": row.max_attempts + 1}, 0.0)
        return True


def _next(connection: Connection, at: float) -> Row[Any] | None:
    """A job whose lease ran out, or the one that has waited longest; its row is locked."""
    silent = (JOBS.c.state == "running") & (JOBS.c.lease_until < at)
    waiting = (JOBS.c.state == "queued") & (JOBS.c.run_after <= at)
    for condition, order in (
        (silent, [JOBS.c.lease_until]),
        (waiting, [JOBS.c.run_after, JOBS.c.created_at, JOBS.c.id]),
    ):
        query = select(JOBS).where(condition).order_by(*order).limit(1)
        row = connection.execute(query.with_for_update(skip_locked=True)).one_or_none()
        if row is not None:
            return row
    return None


def _given_up(connection: Connection, row: Row[Any]) -> bool:
    """Ends a job whose worker fell silent, if it is not to be tried again."""
    if row.cancel_requested:
        finish(connection, row.id, {"state": "cancelled"})
        return True
    if row.attempt < row.max_attempts:
        return False
    detail = f"attempt {row.attempt} of {row.max_attempts} ended without a word from its worker"
    if row.error is not None:
        detail += f"; the one before: {json.loads(row.error)['detail']}"
    error = {"type": "attempts-exhausted", "detail": detail}
    finish(connection, row.id, {"state": "failed", "error": error})
    return True


def _take(connection: Connection, row: Row[Any], said: Mapping[str, Any], lease: float) -> Job:
    at = now(connection)
    values = {
        "state": "running",
        "attempt": row.attempt + 1,
        "worker": said["worker"],
        "lease_until": at + lease,
        "started_at": at if row.started_at is None else row.started_at,
    }
    taken = update(JOBS).where(JOBS.c.id == row.id).values(values).returning(*JOBS.c)
    job = job_of(connection.execute(taken).one())
    event = {"state": "running", "attempt": job.attempt, "device": said["device"]}
    add_event(connection, job.id, "state", event)
    return job


def _queue_again(connection: Connection, job: Job, values: Mapping[str, Any], delay: float) -> None:
    again = {"state": "queued", "lease_until": None, "run_after": now(connection) + delay}
    connection.execute(update(JOBS).where(JOBS.c.id == job.id).values({**values, **again}))
    add_event(connection, job.id, "state", {"state": "queued", "attempt": job.attempt})


def _mine(job: Job) -> ColumnElement[bool]:
    return (JOBS.c.id == job.id) & (JOBS.c.attempt == job.attempt) & (JOBS.c.state == "running")


def _locked(job: Job) -> Select[Any]:
    return select(JOBS).where(_mine(job)).with_for_update()


def _fenced(job: Job, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - RETURNING has no type
    return update(JOBS).where(_mine(job)).values(values).returning(JOBS.c.cancel_requested)


def _written_before(
    connection: Connection, job: Job, states: Sequence[str], **columns: str
) -> bool:
    """Whether this worker has ended the attempt so, and the answer to its commit was lost."""
    condition = (JOBS.c.id == job.id) & (JOBS.c.attempt == job.attempt) & JOBS.c.state.in_(states)
    for name, value in columns.items():
        condition &= JOBS.c[name] == value
    return connection.execute(select(JOBS.c.id).where(condition)).one_or_none() is not None
