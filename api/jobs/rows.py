"""Rows of jobs and events, and how they are written."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Row, insert, update

from api.schemas.jobs import StoredResult
from api.storage.database import now
from api.storage.tables import EVENTS, JOBS, State
from difficulty_service.options import DatasetScoring


@dataclass(frozen=True)
class Job:
    """One row of `JOBS`, with its JSON parsed; times are in seconds since 1970.

    Attributes:
        owner: Id of the key that submitted it; "" where there are no keys.
        run_after: Earliest time of its next attempt.
        started_at: Time of its first claim.
        attempt: Number of claims, which fences off a worker that lost the job.
        worker: Id of the worker that has or last had it.
        lease_until: Time at which the lease expires without a heartbeat.
        done: Number of samples processed.
        total: Number of samples of the dataset; None until known.
        bad: Number of unreadable images.
        rate: Samples per second.
        error: Failure of the job or of its previous attempt: "type", "detail" and where known
            "remedy" and "field".
        result: What it answers, once it has succeeded.
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
    result: StoredResult | None

    @property
    def options(self) -> DatasetScoring:
        """The options of its request."""
        known = DatasetScoring.model_fields
        return DatasetScoring(
            **{name: self.request[name] for name in known if name in self.request}
        )

    @property
    def is_text(self) -> bool:
        """Whether its samples are texts."""
        return self.request.get("text_column") is not None

    @property
    def kind(self) -> str:
        """What its samples are, in a word."""
        return "text" if self.is_text else "image"


@dataclass(frozen=True)
class Event:
    """An event of a job; ids increase with time.

    Attributes:
        at: Time in seconds since 1970.
        kind: "state", "progress" or "warning".
        data: Content of the event.
    """

    id: int
    at: float
    kind: str
    data: Mapping[str, Any]


def job_of(row: Row[Any]) -> Job:
    """A row of `JOBS`, with its JSON parsed.

    Raises:
        ValueError: Its result is not that of a job.
    """
    values = row._asdict()
    for name in ("request", "error", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    if values["result"] is not None:
        values["result"] = StoredResult.of(values["result"])
    return Job(**values | {"cancel_requested": bool(values["cancel_requested"])})


def add_event(connection: Connection, job_id: str, kind: str, data: Mapping[str, Any]) -> None:
    """Inserts an event; the transaction must have written the row of the job before.

    Otherwise two writers could commit their events in another order than that of their ids, and a
    reader who resumes after the larger id would never see the smaller one.
    """
    values = {"job": job_id, "at": now(connection), "kind": kind, "data": encode(data)}
    connection.execute(insert(EVENTS).values(values))


def finish(connection: Connection, job_id: str, values: Mapping[str, Any]) -> Row[Any]:
    """Records the end of a job and its event; error and result in `values` are JSON values."""
    columns = {k: encode(v) if k in ("error", "result") else v for k, v in values.items()}
    columns |= {"finished_at": now(connection), "lease_until": None}
    changed = update(JOBS).where(JOBS.c.id == job_id).values(columns).returning(*JOBS.c)
    row = connection.execute(changed).one()
    data = {name: values[name] for name in ("state", "error") if values.get(name) is not None}
    add_event(connection, job_id, "state", data)
    return row


def encode(values: Mapping[str, Any]) -> str:
    """Canonical JSON; in ASCII, as PostgreSQL stores neither NUL nor lone surrogates."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)
