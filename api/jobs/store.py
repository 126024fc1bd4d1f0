"""Jobs and their events: submitted, listed, followed, cancelled, deleted."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sqlalchemy as sa

from api.http.principals import Principal
from api.jobs.stored_result import StoredResult
from api.storage.database import now, retry, write_transaction
from api.storage.space import makes_room
from api.storage.tables import (
    APPLIED_MARKS,
    DELETING,
    EVENTS,
    JOBS,
    SHARED_JOBS,
    STATES,
    is_id,
    new_id,
)
from api.uploads.quota import Quota, lock_owner, require_room, usage_of
from difficulty_service.base.contract import Contract
from difficulty_service.bodies.jobs import (
    FINAL_STATES,
    JobError,
    JobRequest,
    State,
    WeightsDownload,
)


@dataclass(frozen=True)
class Job:
    """One row of `JOBS`, with its JSON parsed; times are in seconds since 1970."""

    id: str
    owner: str  # id of the key that submitted it; "" where there are no keys
    state: State
    request: Mapping[str, Any]
    request_sha256: str
    root: str | None  # of its dataset; None for an upload
    idempotency_key: str | None
    created_at: float
    run_after: float  # earliest time of its next attempt
    started_at: float | None  # time of its first claim
    finished_at: float | None
    attempt: int  # number of claims, which fences off a worker that lost the job
    max_attempts: int
    worker: str | None  # id of the worker that has or last had it
    lease_until: float | None  # when it expires without a heartbeat
    hold_seconds: float  # length of its lease, or of the delay of its next attempt
    cancel_requested: bool
    done: int  # samples processed
    total: int | None  # None until known
    bad: int  # unreadable images
    rate: float | None  # samples per second
    seconds: float  # of work on it in all attempts, at the last heartbeat
    error: JobError | None  # of the job, or of its previous attempt
    result: StoredResult | None
    stored_bytes: int | None  # of its artifacts; None until counted
    download: WeightsDownload | None = None  # while it runs, where the reader asked for it

    @cached_property
    def wanted(self) -> JobRequest:
        """What its request asks for."""
        return JobRequest(**self.request)

    @property
    def is_text(self) -> bool:
        """Whether its samples are texts."""
        return self.kind == "text"

    @property
    def kind(self) -> str:
        """What its samples are, in a word."""
        return self.wanted.modality

    def key(self, name: str) -> str:
        """Key of one of its files, once it has succeeded."""
        assert self.result is not None  # noqa: S101 - because it succeeded
        return f"{self.result.prefix}/{name}"


@dataclass(frozen=True)
class Event:
    """An event of a job; ids increase with time."""

    id: int
    at: float
    kind: str  # "state", "progress" or "warning"
    data: Mapping[str, Any]


def job_of(row: sa.Row[Any]) -> Job:
    """A row of `JOBS`, with its JSON parsed."""
    values = row._asdict()
    for name in ("request", "error", "result"):
        values[name] = None if values[name] is None else json.loads(values[name])
    if values["error"] is not None:
        values["error"] = JobError.of(values["error"])
    if values["result"] is not None:
        values["result"] = StoredResult.of(values["result"])
    if (event := values.pop("last_event", None)) is not None:
        download = json.loads(event).get("download")
        values["download"] = None if download is None else WeightsDownload(**download)
    return Job(**values | {"cancel_requested": bool(values["cancel_requested"])})


def with_download() -> sa.Select[Any]:
    """Selects jobs with the last event of those that are running, which tells of a download."""
    last = (
        sa.select(EVENTS.c.data)
        .where(EVENTS.c.job == JOBS.c.id)
        .order_by(EVENTS.c.id.desc())
        .limit(1)
        .scalar_subquery()
    )
    return sa.select(JOBS, sa.case((JOBS.c.state == "running", last)).label("last_event"))


def add_event(connection: sa.Connection, job_id: str, kind: str, data: Mapping[str, Any]) -> None:
    """Inserts an event; the transaction must have written the row of the job before.

    Otherwise two writers could commit their events in another order than that of their ids, and a
    reader who resumes after the larger id would never see the smaller one.
    """
    values = {"job": job_id, "at": now(connection), "kind": kind, "data": encode(data)}
    connection.execute(sa.insert(EVENTS).values(values))


def finish(connection: sa.Connection, job_id: str, values: Mapping[str, Any]) -> sa.Row[Any]:
    """Records the end of a job and its event."""
    columns = {k: encode(v.to_json()) if isinstance(v, Contract) else v for k, v in values.items()}
    columns |= {"finished_at": now(connection), "lease_until": None}
    changed = sa.update(JOBS).where(JOBS.c.id == job_id).values(columns).returning(*JOBS.c)
    row = connection.execute(changed).one()
    error: JobError | None = values.get("error")
    data = {"state": values["state"]} | ({} if error is None else {"error": error.to_json()})
    add_event(connection, job_id, "state", data)
    return row


def encode(values: Mapping[str, Any]) -> str:
    """Canonical JSON; in ASCII, as PostgreSQL stores neither NUL nor lone surrogates."""
    return json.dumps(values, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Cursor:
    """The last job of a page; the next page begins with the next older one."""

    created_at: float
    id: str


@dataclass(frozen=True)
class SubmitLimits:
    """Limits for the jobs of an owner."""

    max_queued: int
    max_attempts: int
    quota: Quota | None = None  # None for any number of bytes


class IdempotencyConflict(Exception):
    """The idempotency key belongs to a job with another request; the message names the job."""


class TooManyJobs(Exception):
    """The owner has the maximum number of queued jobs."""


def submit(
    engine: sa.Engine,
    owner: str,
    request: Mapping[str, Any],
    idempotency_key: str | None,
    limits: SubmitLimits,
    applied_marks: bytes | None = None,
) -> tuple[Job, bool]:
    """Queues a job, unless one with this idempotency key exists; says whether it is new.

    The key has at most 200 characters, none of them NUL. `encode_marks` has written the marks to
    keep with a new job.

    Raises `IdempotencyConflict` where the key belongs to a job with another request, `TooManyJobs`
    where the owner has `limits.max_queued` queued jobs, and a `Problem` where it keeps as much as
    it may.
    """
    body = encode(request)
    values = {
        "id": new_id(),
        "owner": owner,
        "state": "queued",
        "request": body,
        "root": request.get("dataset", {}).get("root"),
        "request_sha256": hashlib.sha256(body.encode()).hexdigest(),
        "idempotency_key": idempotency_key,
        "max_attempts": limits.max_attempts,
    }
    job = _queue(engine, values, limits, applied_marks)
    if job.request_sha256 != values["request_sha256"]:
        raise IdempotencyConflict(
            f"the idempotency key {idempotency_key!r} belongs to job {job.id} with another request"
        )
    return job, job.id == values["id"]


@retry
def _queue(
    engine: sa.Engine, values: Mapping[str, Any], limits: SubmitLimits, applied_marks: bytes | None
) -> Job:
    """Inserts the job, unless one with its idempotency key or its id exists."""
    with write_transaction(engine) as connection:
        lock_owner(connection, values["owner"])
        same = JOBS.c.id == values["id"]  # whose confirmation may have been lost
        own = JOBS.c.owner == values["owner"]
        if values["idempotency_key"] is not None:
            same |= own & (JOBS.c.idempotency_key == values["idempotency_key"])
        row = connection.execute(sa.select(JOBS).where(same)).one_or_none()
        if row is None:
            queued = sa.select(sa.func.count()).where(own, JOBS.c.state == "queued")
            if (number := connection.execute(queued).scalar_one()) >= limits.max_queued:
                raise TooManyJobs(f"{number} jobs are queued, the maximum is {limits.max_queued}")
            if limits.quota is not None:
                require_room(usage_of(connection, values["owner"], limits.quota))
            times = dict.fromkeys(("created_at", "run_after"), now(connection))
            added = sa.insert(JOBS).values({**values, **times}).returning(*JOBS.c)
            row = connection.execute(added).one()
            if applied_marks is not None:
                kept = {"job": row.id, "marks": applied_marks}
                connection.execute(sa.insert(APPLIED_MARKS), kept)
            add_event(connection, row.id, "state", {"state": "queued"})
        return job_of(row)


def get_job(engine: sa.Engine, owner: str | None, job_id: str) -> Job | None:
    """The job; None if it does not exist or belongs to another owner; owner None sees all."""
    if not is_id(job_id):
        return None
    with engine.connect() as connection:
        row = connection.execute(sa.select(JOBS).where(_is(owner, job_id))).one_or_none()
    return None if row is None else job_of(row)


def visible_job(engine: sa.Engine, viewer: Principal, job_id: str) -> Job | None:
    """A job that the caller sees: its own, one that is shared with it, or with `read-all` any.

    None of a root that it may not use.
    """
    if not is_id(job_id):
        return None
    query = with_download().where(_is(None, job_id), _visible_to(viewer))
    with engine.connect() as connection:
        row = connection.execute(query).one_or_none()
    return None if row is None else job_of(row)


def visible_jobs(engine: sa.Engine, viewer: Principal | None, job_ids: Collection[str]) -> set[str]:
    """Those of some jobs that a caller sees, as by `visible_job`; without one, that there are."""
    seen = sa.true() if viewer is None else _visible_to(viewer)
    query = sa.select(JOBS.c.id).where(JOBS.c.id.in_(job_ids), JOBS.c.state != DELETING, seen)
    with engine.connect() as connection:
        return set(connection.execute(query).scalars())


def sees_job_of(viewer: Principal, owner: str, root: str | None) -> bool:
    """Whether a job of an owner and a root is one that the caller sees without its being shared."""
    is_of_roots = viewer.roots is None or root in viewer.roots
    return (viewer.sees_all and is_of_roots) or (owner == viewer.owner and viewer.may_use(root))


def own_job(engine: sa.Engine, viewer: Principal, job_id: str) -> Job | None:
    """As `visible_job`, if it is the caller's own."""
    job = visible_job(engine, viewer, job_id)
    return job if job is not None and job.owner == viewer.owner else None


def _visible_to(viewer: Principal) -> sa.ColumnElement[bool]:
    shared = sa.select(SHARED_JOBS.c.job).where(SHARED_JOBS.c.key == viewer.owner)
    given = (JOBS.c.owner == viewer.owner) | JOBS.c.id.in_(shared)
    if viewer.roots is None:
        return sa.true() if viewer.sees_all else given
    of_roots = JOBS.c.root.in_(sorted(viewer.roots))
    return (of_roots | JOBS.c.root.is_(None)) & given | (
        of_roots if viewer.sees_all else sa.false()
    )


def list_jobs(
    engine: sa.Engine,
    owner: str | None,
    *,
    viewer: Principal | None = None,
    state: str | None = None,
    limit: int,
    before: Cursor | None = None,
) -> list[Job]:
    """At most `limit` jobs, newest first, older than `before`; owner None sees all.

    With a viewer, only those that it sees.
    """
    query = with_download().where(JOBS.c.state != DELETING).limit(limit)
    query = query.order_by(JOBS.c.created_at.desc(), JOBS.c.id.desc())
    if owner is not None:
        query = query.where(JOBS.c.owner == owner)
    if viewer is not None:
        query = query.where(_visible_to(viewer))
    if state is not None:
        query = query.where(JOBS.c.state == state)
    if before is not None:
        last = (before.created_at, before.id if is_id(before.id) else "")
        query = query.where(sa.tuple_(JOBS.c.created_at, JOBS.c.id) < last)
    return _jobs(engine, query)


def rounds_of(engine: sa.Engine, jobs: Collection[Job]) -> dict[str, int]:
    """Number of the round of each job that applies marks, from 2; without one if it is unknown.

    It follows the jobs whose marks were applied, of which one may have been deleted.
    """
    sources = {job.id: job.wanted.marks for job in jobs}
    wanted = {each for each in sources.values() if each is not None}
    while missing := list(wanted - sources.keys()):
        query = sa.select(JOBS.c.id, JOBS.c.request).where(JOBS.c.id.in_(missing))
        with engine.connect() as connection:
            rows = connection.execute(query).all()
        found = {row.id: json.loads(row.request).get("marks") for row in rows}
        sources |= found
        wanted = {each for each in found.values() if each is not None}
    rounds = {}
    for job in jobs:
        number, source = 1, sources[job.id]
        while source is not None and source in sources:
            number, source = number + 1, sources[source]
        if source is None and number > 1:
            rounds[job.id] = number
    return rounds


def succeeded_at_once(
    engine: sa.Engine, backbone: str | None, devices: Collection[str], limit: int
) -> list[Job]:
    """The latest jobs, of any owner, that succeeded at their first attempt on such a device."""
    named = [encode({"device": device})[1:-1] for device in devices]
    claims = sa.or_(*(EVENTS.c.data.contains(each, autoescape=True) for each in named))
    query = sa.select(JOBS).where(
        (JOBS.c.state == "succeeded") & (JOBS.c.attempt == 1),
        JOBS.c.request.contains(encode({"backbone": backbone})[1:-1], autoescape=True),
        sa.exists().where(EVENTS.c.job == JOBS.c.id, EVENTS.c.kind == "state", claims),
    )
    return _jobs(engine, query.order_by(JOBS.c.finished_at.desc()).limit(limit))


@retry
@makes_room
def request_cancel(engine: sa.Engine, owner: str | None, job_id: str) -> Job | None:
    """Cancels a queued job, or asks the worker of a running one to stop it.

    None if it does not exist or belongs to another owner.
    """
    if not is_id(job_id):
        return None
    with write_transaction(engine) as connection:
        query = sa.select(JOBS).where(_is(owner, job_id)).with_for_update()
        row = connection.execute(query).one_or_none()
        if row is None:
            return None
        if row.state in FINAL_STATES:
            return job_of(row)
        at = now(connection)
        # A worker whose lease has expired will not respond.
        if row.state == "queued" or row.lease_until < at:
            return job_of(finish(connection, row.id, {"state": "cancelled", "cancel_requested": 1}))
        if row.cancel_requested:
            return job_of(row)
        flagged = sa.update(JOBS).where(JOBS.c.id == row.id).values(cancel_requested=1)
        row = connection.execute(flagged.returning(*JOBS.c)).one()
        add_event(connection, row.id, "state", {"state": "running", "cancel_requested": True})
        return job_of(row)


@retry
@makes_room
def begin_deletion(engine: sa.Engine, owner: str | None, job_id: str) -> bool:
    """Hides a finished job from every client, so that its files can be deleted.

    False if it does not exist, is not finished, or belongs to another owner.
    """
    if not is_id(job_id):
        return False
    finished = _is(owner, job_id) & JOBS.c.state.in_(FINAL_STATES)
    # Its idempotency key is free again.
    values = {"state": DELETING, "idempotency_key": None}
    with write_transaction(engine) as connection:
        hidden = sa.update(JOBS).where(finished).values(values).returning(JOBS.c.id)
        return connection.execute(hidden).one_or_none() is not None


def jobs_to_delete(engine: sa.Engine) -> list[str]:
    """Ids of the jobs whose deletion was begun and has not ended."""
    with engine.connect() as connection:
        query = sa.select(JOBS.c.id).where(JOBS.c.state == DELETING).order_by(JOBS.c.id)
        return list(connection.execute(query).scalars())


@retry
@makes_room
def end_deletion(engine: sa.Engine, job_id: str) -> None:
    """Deletes the row of a job whose files are deleted, with its events and marks."""
    with write_transaction(engine) as connection:
        hidden = (JOBS.c.id == job_id) & (JOBS.c.state == DELETING)
        connection.execute(sa.delete(JOBS).where(hidden))


def events_after(engine: sa.Engine, job_id: str, last_id: int, limit: int) -> list[Event]:
    """At most `limit` events of a job, oldest first, that came after event `last_id`."""
    if not is_id(job_id):
        return []
    # The ids of one job are committed in order, as `add_event` requires a lock on the job's row.
    query = (
        sa.select(EVENTS)
        .where(EVENTS.c.job == job_id, EVENTS.c.id > last_id)
        .order_by(EVENTS.c.id)
        .limit(limit)
    )
    with engine.connect() as connection:
        rows = connection.execute(query).all()
    return [Event(row.id, row.at, row.kind, json.loads(row.data)) for row in rows]


def expired_jobs(engine: sa.Engine, older_than: float, limit: int = 100) -> list[Job]:
    """At most `limit` jobs that finished more than `older_than` seconds ago, oldest first."""
    with engine.connect() as connection:
        end = now(connection) - older_than
    finished = JOBS.c.state.in_(FINAL_STATES) & (JOBS.c.finished_at < end)
    return _jobs(engine, sa.select(JOBS).where(finished).order_by(JOBS.c.finished_at).limit(limit))


def counts(engine: sa.Engine) -> dict[str, int]:
    """Number of jobs in each state, zeros included."""
    query = sa.select(JOBS.c.state, sa.func.count().label("number")).group_by(JOBS.c.state)
    with engine.connect() as connection:
        numbers = {row.state: row.number for row in connection.execute(query)}
    return {state: numbers.get(state, 0) for state in STATES}


def oldest_queued_age(engine: sa.Engine) -> float | None:
    """Seconds that the longest waiting job has waited; None if none can be claimed.

    A job that is retried waits from the earliest time of its next attempt. After the clock was set
    back, one that was queued before has waited for 0 seconds.
    """
    with engine.connect() as connection:
        at = now(connection)
        query = sa.select(sa.func.min(JOBS.c.run_after)).where(is_claimable(at))
        since = connection.execute(query).scalar_one()
    return None if since is None else max(0.0, at - since)


def is_claimable(at: float) -> sa.ColumnElement[bool]:
    """Whether a job waits and no delay holds it back at this time.

    A delay that has more than its length ahead was written before the clock was set back, and
    counts as over. A new job has none, so that it can be claimed whatever the clock says.
    """
    is_over = (JOBS.c.run_after <= at) | (JOBS.c.run_after > at + JOBS.c.hold_seconds)
    return (JOBS.c.state == "queued") & is_over


def uncounted_jobs(engine: sa.Engine, limit: int) -> list[Job]:
    """Jobs with a result whose size is not known, as they are from an earlier version."""
    is_uncounted = (JOBS.c.state == "succeeded") & JOBS.c.stored_bytes.is_(None)
    return _jobs(engine, sa.select(JOBS).where(is_uncounted).limit(limit))


@retry
def set_stored_bytes(engine: sa.Engine, job_id: str, number: int) -> None:
    """Records the size of the artifacts of a job."""
    with write_transaction(engine) as connection:
        changed = sa.update(JOBS).where(JOBS.c.id == job_id)
        connection.execute(changed.values(stored_bytes=number))


def _is(owner: str | None, job_id: str) -> sa.ColumnElement[bool]:
    condition = (JOBS.c.id == job_id) & (JOBS.c.state != DELETING)
    return condition if owner is None else condition & (JOBS.c.owner == owner)


def _jobs(engine: sa.Engine, query: sa.Select[Any]) -> list[Job]:
    with engine.connect() as connection:
        return [job_of(row) for row in connection.execute(query)]
