"""A job as a row, and what is written whenever one changes."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, update

from api.storage.database import now
from api.storage.tables import EVENTS, JOBS, State


@dataclass(frozen=True)
class Job:
    """One row of `JOBS`, with its JSON read; times are seconds since 1970.

    Attributes:
        owner: Id of the key that submitted it; "" where there are no keys.
        run_after: When it may be claimed.
        started_at: When it was claimed first.
        attempt: Counts the claims; the fence that keeps out whoever lost the job.
        worker: Who has it or had it last.
        lease_until: Until when the worker has it without being heard of again.
        done: Samples.
        total: Samples; None until known.
        bad: Images that could not be read.
        rate: Samples per second.
        error: Why it failed, or why the attempt before did; with "type" and "detail".
        result: Where the artifacts are, and what is known of them.
    """

    id: str
    owner: str
    state: State
    request: Mapping[str, Any]
    request_sha256: str
    idempotency_key: str | None
    created_at: float
    run_after: float
    started_at: float | None
    finished_at: float | None
    attempt: int
    max_attempts: int
    worker: str | None
    lease_until: float | None
    cancel_requested: bool
    done: int
    total: int | None
    bad: int
    rate: float | None
    error: Mapping[str, Any] | None
    result: Mapping[str, Any] | None


@dataclass(frozen=True)
class Event:
    """Something that happened to a job; ids grow with time.

    Attributes:
        at: Seconds since 1970.
        kind: "state", "progress" or "warning".
        data: What happened.
    """

    id: int
    at: float
    kind: str
    data: Mapping[str, Any]


def job_of(row: Row[Any]) -> Job:
    """A row of `JOBS`, with its JSON read."""
    values = row._asdict()
    for name in ("request", "error", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    return Job(**values | {"cancel_requested": bool(values["cancel_requested"])})


def add_event(connection: Connection, job_id: str, kind: str, data: Mapping[str, Any]) -> None:
    """Writes an event; the transaction must have written the job's row before.

    Otherwise two writers could commit their events in another order than that of their ids, and
    who reads on from the larger id would never see the smaller one.
    """
    values = {"job": job_id, "at": now(connection), "kind": kind, "data": encode(data)}
    connection.execute(insert(EVENTS).values(values))


def finish(connection: Connection, job_id: str, values: Mapping[str, Any]) -> Row[Any]:
    """Writes the end of a job and its event; error and result in `values` are JSON values."""
    columns = {k: encode(v) if k in ("error", "result") else v for k, v in values.items()}
    columns |= {"finished_at": now(connection), "lease_until": None}
    changed = update(JOBS).where(JOBS.c.id == job_id).values(columns).returning(*JOBS.c)
    row = connection.execute(changed).one()
    said = {name: values[name] for name in ("state", "error") if values.get(name) is not None}
    add_event(connection, job_id, "state", said)
    return row


def encode(values: Mapping[str, Any]) -> str:
    """The same text for equal values; ASCII, as PostgreSQL takes no NUL and no lone surrogate."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
