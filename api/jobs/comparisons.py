"""What is asked of finished jobs together: who may see it, who makes it, and how far it is.

A comparison shows what is in all of its jobs, so whoever does not see one of them does not see it.
Any server of a database may be asked for it, while one of them makes it.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self

import sqlalchemy as sa

from api.http.principals import Principal
from api.http.problems import conflict
from api.jobs.store import Job, sees_job_of, visible_jobs
from api.storage.database import now, retry, write_transaction
from api.storage.tables import COMPARISONS

MOST_OF_A_JOB = 200
"""Comparisons that a job keeps."""

HEARD_WITHIN = 60.0
"""Seconds after which a maker that was not heard of has ended."""

ENDED = "the server that made it has ended"

State = Literal["running", "succeeded", "failed"]


@dataclass(frozen=True)
class OtherJob:
    """A job that a comparison is about besides that of its address; it may be deleted meanwhile."""

    id: str
    owner: str
    root: str | None

    @classmethod
    def of(cls, job: Job) -> Self:
        """What has to be known of a job to tell who may see what is in it."""
        return cls(job.id, job.owner, job.root)


@dataclass(frozen=True)
class StoredComparison:
    """A comparison that was asked of a job."""

    job: str
    id: str
    others: Sequence[OtherJob]  # all other jobs that its result may show something of
    request: Mapping[str, Any]  # the body of the request
    state: State
    share: float = 0.0
    failure: str | None = None  # why there is no result
    summary: str | None = None  # what was found, in a sentence


def find(
    engine: sa.Engine, viewer: Principal, job_id: str, comparison_id: str
) -> StoredComparison | None:
    """A comparison of a job that the caller sees; None also where it does not see another job."""
    query = sa.select(COMPARISONS).where(_is(job_id, comparison_id))
    return next(iter(_visible(engine, viewer, query)), None)


def is_kept(engine: sa.Engine, job_id: str, comparison_id: str) -> bool:
    """Whether a comparison was asked for and is not deleted, whoever may see it."""
    query = sa.select(COMPARISONS.c.id).where(_is(job_id, comparison_id))
    with engine.connect() as connection:
        return connection.execute(query).one_or_none() is not None


def list_of(engine: sa.Engine, viewer: Principal, job_id: str) -> list[StoredComparison]:
    """Those of a job that the caller sees, the latest first; MOST_OF_A_JOB at most."""
    order = (COMPARISONS.c.asked_at.desc(), COMPARISONS.c.id)
    query = sa.select(COMPARISONS).where(COMPARISONS.c.job == job_id).order_by(*order)
    return _visible(engine, viewer, query)


@retry
def begin(engine: sa.Engine, comparison: StoredComparison, maker: str) -> bool:
    """Records that a comparison is being made from now on; False where somebody else makes it.

    Args:
        maker: What its maker names in the functions below, another one each time.

    Raises:
        Problem: The job keeps as many as it may.
    """
    mine = COMPARISONS.c.job == comparison.job
    with write_transaction(engine) as connection:
        at = now(connection)
        same = sa.select(COMPARISONS).where(_is(comparison.job, comparison.id))
        present = connection.execute(same.with_for_update()).one_or_none()
        if present is not None and _of(present, at).state == "running":
            return bool(present.maker == maker)  # the confirmation of a first try was lost
        count = sa.select(sa.func.count()).select_from(COMPARISONS).where(mine)
        if present is None and connection.execute(count).scalar_one() >= MOST_OF_A_JOB:
            raise conflict(
                f"the job has {MOST_OF_A_JOB} comparisons already",
                "delete one that is no longer needed",
            )
        values = {
            "job": comparison.job,
            "id": comparison.id,
            "others": json.dumps([vars(each) for each in comparison.others]),
            "request": json.dumps(comparison.request),
            "state": "running",
            "share": 0.0,
            "failure": None,
            "summary": None,
            "maker": maker,
            "asked_at": at,
            "seen_at": at,
        }
        connection.execute(sa.delete(COMPARISONS).where(_is(comparison.job, comparison.id)))
        connection.execute(sa.insert(COMPARISONS).values(values))
    return True


@retry
def heard_of(engine: sa.Engine, shares: Mapping[str, float]) -> set[str]:
    """Records how far each of some makers is; gives those that are not wanted any longer."""
    gone = set()
    with write_transaction(engine) as connection:
        at = now(connection)
        for maker, share in shares.items():
            told = sa.update(COMPARISONS).where(COMPARISONS.c.maker == maker)
            if not connection.execute(told.values(share=share, seen_at=at)).rowcount:
                gone.add(maker)
    return gone


@retry
def finish(
    engine: sa.Engine, maker: str, *, summary: str | None = None, failure: str | None = None
) -> bool:
    """Records how a comparison has ended; False where it was deleted meanwhile."""
    state = "succeeded" if failure is None else "failed"
    values = {"state": state, "share": 1.0, "summary": summary, "failure": failure}
    with write_transaction(engine) as connection:
        ended = sa.update(COMPARISONS).where(COMPARISONS.c.maker == maker).values(values)
        return bool(connection.execute(ended).rowcount)


@retry
def delete(engine: sa.Engine, job_id: str, comparison_id: str) -> None:
    """Forgets a comparison; the server that makes it hears that by `heard_of`."""
    with write_transaction(engine) as connection:
        connection.execute(sa.delete(COMPARISONS).where(_is(job_id, comparison_id)))


def _is(job_id: str, comparison_id: str) -> sa.ColumnElement[bool]:
    return (COMPARISONS.c.job == job_id) & (COMPARISONS.c.id == comparison_id)


def _visible(engine: sa.Engine, viewer: Principal, query: sa.Select[Any]) -> list[StoredComparison]:
    """Those of a query all of whose jobs the caller sees."""
    with engine.connect() as connection:
        at = now(connection)
        found = [_of(row, at) for row in connection.execute(query)]
    named = {other.id for each in found for other in each.others}
    visible = visible_jobs(engine, viewer, named)
    deleted = named - visible_jobs(engine, None, named)
    return [each for each in found if _sees(viewer, each.others, visible, deleted)]


def _sees(
    viewer: Principal,
    others: Sequence[OtherJob],
    visible: Collection[str],
    deleted: Collection[str],
) -> bool:
    """Whether the caller sees all of some jobs; of one that is deleted, whether it did."""
    return all(
        each.id in visible or (each.id in deleted and sees_job_of(viewer, each.owner, each.root))
        for each in others
    )


def _of(row: sa.Row[Any], at: float) -> StoredComparison:
    has_ended = row.state == "running" and at - row.seen_at > HEARD_WITHIN
    return StoredComparison(
        job=row.job,
        id=row.id,
        others=[OtherJob(**each) for each in json.loads(row.others)],
        request=json.loads(row.request),
        state="failed" if has_ended else row.state,
        share=row.share,
        failure=ENDED if has_ended else row.failure,
        summary=row.summary,
    )
