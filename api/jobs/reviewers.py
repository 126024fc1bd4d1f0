"""The marks of everybody who reviews a job, and the keys that its owner shares it with."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, delete, insert, select

from api.http.problems import conflict, invalid
from api.jobs.marks import BATCH, SampleMark, marks_by_owner
from api.storage.database import retry, write_transaction
from api.storage.keys import Key, is_in_force, list_keys
from api.storage.space import makes_room
from api.storage.tables import FINAL, JOBS, MARKS, SHARED_JOBS, is_id
from difficulty_service.marks.mark_kinds import Mark

MOST_SHARED = 100  # keys that a job is shared with
NO_KEY = "without a key"  # name of whoever marked before there were keys


@dataclass(frozen=True)
class ReviewMarks:
    """The marks of all reviewers of a job, with the final decisions, in the order of the rows.

    Attributes:
        rows: Row of the sample of each mark in the score file. Shape (marks,).
        owners: Place in `owner_ids` of whoever gave it. Shape (marks,).
        decisions: Place in `decided` of what it says. Shape (marks,).
        orders: Place in `order_names` of the order that its sample was met in. Shape (marks,).
        at: When it was given, in seconds since 1970. Shape (marks,).
    """

    rows: NDArray[np.int64]
    owners: NDArray[np.int64]
    decisions: NDArray[np.int64]
    orders: NDArray[np.int64]
    at: NDArray[np.float64]
    owner_ids: Sequence[str]
    decided: Sequence[tuple[Mark, str | None]]
    order_names: Sequence[str]


def review_marks(engine: Engine, job_id: str, only: str | None = None) -> ReviewMarks:
    """All marks of a job, or those of one owner only.

    Their memory does not depend on the length of ids and names.
    """
    owners: dict[str, int] = {}
    decided: dict[tuple[str, str | None], int] = {}
    orders: dict[str, int] = {}
    columns = (MARKS.c.row, MARKS.c.owner, MARKS.c.mark, MARKS.c.label, MARKS.c.order, MARKS.c.at)
    query = select(*columns).where(MARKS.c.job == job_id).order_by(MARKS.c.row, MARKS.c.owner)
    if only is not None:
        query = query.where(MARKS.c.owner == only)
    numbers, times = [np.empty((0, 4), np.int64)], [np.empty(0)]
    with engine.connect().execution_options(yield_per=BATCH) as connection:
        for batch in connection.execute(query).partitions():
            found = [
                (
                    row,
                    owners.setdefault(owner, len(owners)),
                    decided.setdefault((mark, label), len(decided)),
                    orders.setdefault(order, len(orders)),
                )
                for row, owner, mark, label, order, _ in batch
            ]
            numbers.append(np.array(found, np.int64))
            times.append(np.array([row.at for row in batch]))
    rows, of_owners, decisions, of_orders = np.concatenate(numbers).T
    return ReviewMarks(
        rows=rows,
        owners=of_owners,
        decisions=decisions,
        orders=of_orders,
        at=np.concatenate(times),
        owner_ids=list(owners),
        decided=[(Mark(mark), label) for mark, label in decided],
        order_names=list(orders),
    )


def marks_of_sample(engine: Engine, job_id: str, row: int) -> dict[str, SampleMark]:
    """The mark that each reviewer gave a sample, by the id of the key; the final decision, too."""
    owners = ["", FINAL, *(key.id for key in list_keys(engine))]
    found = marks_by_owner(engine, owners, job_id, row)
    return {owner: found[owner] for owner in owners if owner in found}


def keys_by_id(engine: Engine) -> dict[str, Key]:
    """All keys, also those that are no longer in force."""
    return {key.id: key for key in list_keys(engine)}


def shared_with(engine: Engine, job_id: str) -> list[str]:
    """Ids of the keys that a job is shared with, oldest first."""
    query = select(SHARED_JOBS.c.key).where(SHARED_JOBS.c.job == job_id)
    with engine.connect() as connection:
        return list(connection.execute(query.order_by(SHARED_JOBS.c.key)).scalars())


def find_key_id(engine: Engine, text: str) -> str:
    """The id of the key in force that has a name, whatever its case; an id stays as it is.

    Raises:
        Problem: Several keys in force have the name.
    """
    at = time.time()
    found = [
        key.id
        for key in list_keys(engine)
        if key.name.casefold() == text.casefold()
        and key.revoked_at is None
        and not key.terms.are_over(at)
    ]
    if len(found) > 1:
        raise conflict(
            f"{len(found)} keys are called {text[:100]!r}",
            "ask your colleague for the id, which is on the page of reviewers of any job",
            "key",
        )
    return found[0] if found else text


@retry
def share_job(engine: Engine, job_id: str, key_id: str) -> None:
    """Lets another key see a job and, with the scope write, mark its samples.

    Raises:
        Problem: There is no such key, or the job is shared with too many.
    """
    with write_transaction(engine) as connection:
        # One transaction after the other for each job.
        connection.execute(select(JOBS.c.id).where(JOBS.c.id == job_id).with_for_update())
        if not is_in_force(connection, key_id):
            raise invalid(
                f"there is no key {key_id[:100]!r}",
                "check its name; its owner finds its id on the page of reviewers of any job",
                "key",
            )
        shared = select(SHARED_JOBS.c.key).where(SHARED_JOBS.c.job == job_id)
        present = set(connection.execute(shared).scalars())
        if key_id in present:
            return
        if len(present) >= MOST_SHARED:
            raise conflict(
                f"the job is shared with {MOST_SHARED} keys already",
                "remove one, or give reviewers a key with the scopes read-all,write",
                "key",
            )
        connection.execute(insert(SHARED_JOBS).values(job=job_id, key=key_id))


@retry
@makes_room
def unshare_job(engine: Engine, job_id: str, key_id: str) -> None:
    """Hides a job from another key again; the marks that it gave stay."""
    if not is_id(key_id):
        return
    with write_transaction(engine) as connection:
        given = (SHARED_JOBS.c.job == job_id) & (SHARED_JOBS.c.key == key_id)
        connection.execute(delete(SHARED_JOBS).where(given))
