"""The job queue for workers: jobs are claimed with a lease, kept by heartbeats and ended once.

Owners take turns. The next job is one of the owner with the fewest running jobs, of several such
owners the one whose turn is the longest ago, and of this owner the job that has waited longest.

A worker changes a job only under the attempt with which it claimed the job. Each claim increments
the attempt, which fences off a worker that was presumed dead.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import sqlalchemy as sa

from api.jobs.store import Job, add_event, encode, finish, is_claimable, job_of
from api.jobs.stored_result import StoredResult
from api.storage.database import INSERTS, now, retry, write_transaction
from api.storage.tables import JOBS, TURNS, WORKERS
from difficulty_service.backbones.downloads import DownloadProgress
from difficulty_service.bodies.jobs import JobError


@dataclass(frozen=True)
class Progress:
    """Progress of a job."""

    done: int = 0  # samples processed
    total: int | None = None  # None until known
    bad: int = 0  # unreadable images
    rate: float | None = None  # samples per second, once known
    download: DownloadProgress | None = None  # of weights, while they are downloaded


# Never to be changed: every process that claims must take the same lock.
CLAIM_LOCK = 0x0D1FF1E
FROZEN_AFTER = "10s"
"""How long a process in the middle of a claim may be silent until PostgreSQL ends its claim."""

IS_ANY_OPEN = sa.select(sa.exists().where(JOBS.c.state.in_(["queued", "running"])))


@retry
def claim(engine: sa.Engine, worker_id: str, device: str, lease: float) -> Job | None:
    """Claims a job whose lease has expired, or else one of the owner whose turn it is.

    It comes with its new attempt. Another worker may claim it after `lease` seconds, unless
    `heartbeat` renews the lease.
    """
    # Most polls find nothing: these wait for no lock and write nothing.
    with engine.connect() as connection:
        if not connection.execute(IS_ANY_OPEN).scalar_one():
            return None
    with write_transaction(engine) as connection:
        claim_alone(connection)
        _shorten_leases(connection)
        while (row := _next(connection, now(connection))) is not None:
            if row.state == "queued" or not _end_abandoned(connection, row):
                return _assign(connection, row, {"id": worker_id, "device": device}, lease)
    return None


@retry
def heartbeat(
    engine: sa.Engine, job: Job, lease: float, progress: Progress, seconds: float | None = None
) -> Literal["ok", "cancel", "lost"]:
    """Renews the lease of a job for `lease` seconds and records its progress.

    It is "cancel" if its owner has cancelled the job, "lost" if another worker has claimed it.
    `seconds` are those of work on it in all attempts; None for as many as before.
    """
    rate = progress.rate if progress.rate is not None and math.isfinite(progress.rate) else None
    values = asdict(progress) | {"rate": rate}
    download = values.pop("download")
    with write_transaction(engine) as connection:
        worked = {} if seconds is None else {"seconds": seconds}
        renewed = _fenced(job, {**values, **worked, **_lease(now(connection), lease)})
        row = connection.execute(renewed).one_or_none()
        if row is None:
            return "lost"
        downloading = {} if download is None else {"download": download}
        add_event(connection, job.id, "progress", values | downloading)
        return "cancel" if row.cancel_requested else "ok"


@retry
def succeed(engine: sa.Engine, job: Job, result: StoredResult) -> bool:
    """Publishes the result; False, and without effect, if the worker has lost the job."""
    values = {
        "state": "succeeded",
        "result": result,
        "stored_bytes": result.stored_bytes,
        "error": None,
    }
    with write_transaction(engine) as connection:
        # The progress since the last heartbeat, which may be all of it: all samples are done.
        total = sa.func.coalesce(JOBS.c.total, result.num_samples)
        progress = {"done": total, "total": total, "bad": result.num_bad_images}
        counted = _fenced(job, progress)
        if connection.execute(counted).one_or_none() is not None:
            finish(connection, job.id, values)
            return True
        return _was_committed(connection, job, ["succeeded"], result=encode(result.to_json()))


@retry
def fail(engine: sa.Engine, job: Job, error: JobError, *, retry_in: float | None) -> bool:
    """Ends an attempt, and the job with it if it cannot be retried.

    False, and without effect, if the worker has lost the job. `retry_in` are the seconds until the
    next attempt; None if that would fail as well.
    """
    with write_transaction(engine) as connection:
        row = connection.execute(_locked(job)).one_or_none()
        if row is None:
            states = ["failed", "cancelled", "queued"]
            return _was_committed(connection, job, states, error=encode(error.to_json()))
        if row.cancel_requested:
            finish(connection, job.id, {"state": "cancelled", "error": error})
        elif retry_in is None or row.attempt >= row.max_attempts:
            finish(connection, job.id, {"state": "failed", "error": error})
        else:
            _requeue(connection, job, {"error": encode(error.to_json())}, retry_in)
        return True


@retry
def cancelled(engine: sa.Engine, job: Job) -> bool:
    """Ends a job that its owner has cancelled; False if the worker has lost the job."""
    with write_transaction(engine) as connection:
        if connection.execute(_locked(job)).one_or_none() is None:
            return _was_committed(connection, job, ["cancelled"])
        finish(connection, job.id, {"state": "cancelled"})
        return True


@retry
def hand_back(engine: sa.Engine, job: Job) -> bool:
    """Returns a job to the queue that could not finish in time, at no cost of an attempt.

    The attempt stays counted, because the next worker needs a number of its own as a fence; the
    maximum number of attempts grows by one instead.

    False, and without effect, if the worker has lost the job.
    """
    with write_transaction(engine) as connection:
        row = connection.execute(_locked(job)).one_or_none()
        if row is None:
            return _was_committed(connection, job, ["queued"])
        if row.cancel_requested:
            finish(connection, job.id, {"state": "cancelled"})
        else:
            _requeue(connection, job, {"max_attempts": row.max_attempts + 1}, 0.0)
        return True


def claim_alone(connection: sa.Connection) -> None:
    """Lets no other worker claim until the transaction ends: it would not see whose turn that was.

    In SQLite, no other transaction writes anyway.
    """
    if connection.dialect.name == "postgresql":
        frozen_after = sa.text(
            "SELECT set_config('idle_in_transaction_session_timeout', :after, true)"
        )
        connection.execute(frozen_after, {"after": FROZEN_AFTER})
        connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": CLAIM_LOCK})


def _next(connection: sa.Connection, at: float) -> sa.Row[Any] | None:
    """A job whose lease has expired, or else the next one of the queue; its row is locked."""
    expired = (JOBS.c.state == "running") & (JOBS.c.lease_until < at)
    for job_ids in (
        sa.select(JOBS.c.id).where(expired).order_by(JOBS.c.lease_until),
        jobs_in_turn(at),
    ):
        # Only ids at first: to sort requests, which may be long, takes longer.
        unlocked = job_ids.limit(1).with_for_update(of=JOBS, skip_locked=True)
        job_id = connection.execute(unlocked).scalar_one_or_none()
        if job_id is not None:
            return connection.execute(sa.select(JOBS).where(JOBS.c.id == job_id)).one()
    return None


def jobs_in_turn(at: float) -> sa.Select[tuple[str]]:
    """Ids of the jobs that can be claimed, in the order in which they are.

    Only queued and running jobs are read, by their index, however many have finished.
    """
    running = (
        sa.select(JOBS.c.owner, sa.func.count().label("number"))
        .where(JOBS.c.state == "running")
        .group_by(JOBS.c.owner)
        .subquery()
    )
    is_of_later_clock = JOBS.c.run_after > at  # which was set back since: others came after it
    return (
        sa.select(JOBS.c.id)
        .outerjoin(running, running.c.owner == JOBS.c.owner)
        .outerjoin(TURNS, TURNS.c.owner == JOBS.c.owner)
        .where(is_claimable(at))
        .order_by(
            sa.func.coalesce(running.c.number, 0),
            sa.func.coalesce(TURNS.c.turn, 0),
            is_of_later_clock.desc(),
            JOBS.c.run_after,
            JOBS.c.created_at,
            JOBS.c.id,
        )
    )


def _shorten_leases(connection: sa.Connection) -> None:
    """Has leases end in time that the clock, set back since, would have end too late.

    They begin again rather than count as over: a worker that is alive has its whole length to renew
    its lease, and keeps the job.
    """
    at = now(connection)
    too_long = (JOBS.c.state == "running") & (JOBS.c.lease_until > at + JOBS.c.hold_seconds)
    shortened = sa.update(JOBS).where(too_long).values(lease_until=at + JOBS.c.hold_seconds)
    connection.execute(shortened)


def _lease(at: float, length: float) -> dict[str, float]:
    return {"lease_until": at + length, "hold_seconds": length}


def _end_abandoned(connection: sa.Connection, row: sa.Row[Any]) -> bool:
    """Ends a job whose lease has expired, if it cannot be retried; whether it did."""
    if row.cancel_requested:
        finish(connection, row.id, {"state": "cancelled"})
        return True
    if row.attempt < row.max_attempts:
        return False
    detail = f"the worker of attempt {row.attempt} of {row.max_attempts} stopped responding"
    if (before := job_of(row).error) is not None:
        detail += f"; the attempt before failed: {before.detail}"
    error = JobError(type="attempts-exhausted", detail=detail)
    finish(connection, row.id, {"state": "failed", "error": error})
    return True


def _assign(
    connection: sa.Connection, row: sa.Row[Any], worker: Mapping[str, Any], lease: float
) -> Job:
    at = now(connection)
    values = {
        "state": "running",
        "attempt": row.attempt + 1,
        "worker": worker["id"],
        "started_at": at if row.started_at is None else row.started_at,
        **_lease(at, lease),
    }
    assigned = sa.update(JOBS).where(JOBS.c.id == row.id).values(values).returning(*JOBS.c)
    job = job_of(connection.execute(assigned).one())
    # Counts the claim, which leaves the next one to another owner.
    last = connection.execute(sa.select(sa.func.max(TURNS.c.turn))).scalar_one() or 0
    turn = {"turn": last + 1}
    taken = INSERTS[connection.dialect.name](TURNS).values(owner=job.owner, **turn)
    connection.execute(taken.on_conflict_do_update(index_elements=["owner"], set_=turn))
    event = {"state": "running", "attempt": job.attempt, "device": worker["device"]}
    add_event(connection, job.id, "state", event)
    return job


def _requeue(connection: sa.Connection, job: Job, values: Mapping[str, Any], delay: float) -> None:
    again = {
        "state": "queued",
        "lease_until": None,
        "run_after": now(connection) + delay,
        "hold_seconds": delay,
    }
    connection.execute(sa.update(JOBS).where(JOBS.c.id == job.id).values({**values, **again}))
    add_event(connection, job.id, "state", {"state": "queued", "attempt": job.attempt})


def _holds(job: Job) -> sa.ColumnElement[bool]:
    return (JOBS.c.id == job.id) & (JOBS.c.attempt == job.attempt) & (JOBS.c.state == "running")


def _locked(job: Job) -> sa.Select[Any]:
    return sa.select(JOBS).where(_holds(job)).with_for_update()


def _fenced(job: Job, values: Mapping[str, Any]) -> Any:  # noqa: ANN401 - RETURNING has no type
    return sa.update(JOBS).where(_holds(job)).values(values).returning(JOBS.c.cancel_requested)


def _was_committed(
    connection: sa.Connection, job: Job, states: Sequence[str], **columns: str
) -> bool:
    """Whether this worker has ended the attempt already, and the confirmation was lost."""
    condition = (JOBS.c.id == job.id) & (JOBS.c.attempt == job.attempt) & JOBS.c.state.in_(states)
    for name, value in columns.items():
        condition &= JOBS.c[name] == value
    return connection.execute(sa.select(JOBS.c.id).where(condition)).one_or_none() is not None


@dataclass(frozen=True)
class WorkerStatus:
    """A worker at its last heartbeat; times are in seconds since 1970."""

    id: str
    device: str
    started_at: float
    seen_at: float
    job: str | None  # None while it is idle
    images: int  # processed since it started


@retry
def record_heartbeat(
    engine: sa.Engine, worker_id: str, device: str, job: str | None, images: int
) -> None:
    """Records that a worker is alive; the first heartbeat is its start."""
    with write_transaction(engine) as connection:
        at = now(connection)
        values = {"device": device, "seen_at": at, "job": job, "images": images}
        row = {"id": worker_id, "started_at": at, **values}
        statement = INSERTS[connection.dialect.name](WORKERS).values(row)
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))


def live_workers(engine: sa.Engine, within: float) -> list[WorkerStatus]:
    """Workers with a heartbeat in the last `within` seconds, by id.

    One that is further ahead is from before the clock was set back, and says nothing.
    """
    with engine.connect() as connection:
        at = now(connection)
        is_recent = WORKERS.c.seen_at.between(at - within, at + within)
        query = sa.select(WORKERS).where(is_recent).order_by(WORKERS.c.id)
        return [WorkerStatus(**row._asdict()) for row in connection.execute(query)]


@retry
def remove_worker(engine: sa.Engine, worker_id: str) -> None:
    """Removes a worker that has stopped."""
    with write_transaction(engine) as connection:
        connection.execute(sa.delete(WORKERS).where(WORKERS.c.id == worker_id))
