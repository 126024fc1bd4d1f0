"""Marks that people give to the samples of a finished job, and those that another job applies.

A job keeps them as they were when it was submitted: marks that change later do not change it.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, Connection, Engine, Row, and_, delete, func, insert, select
from sqlalchemy.exc import DBAPIError

from api.http.principals import Principal
from api.http.problems import conflict, invalid
from api.jobs.store import Job, own_job
from api.storage.database import now, retry, write_transaction
from api.storage.tables import APPLIED_MARKS, MARKS
from difficulty_service.marks.mark_kinds import MARK_KINDS, Mark
from difficulty_service.marks.marks import (
    NO_MARKS,
    MarkedSample,
    MarkHistory,
    Marks,
    compose,
)

PART = 20_000  # marks that are in memory at once where all are read
AT_ONCE = 500  # values of one statement; SQLite allows a limited number of parameters

T = TypeVar("T")


@dataclass(frozen=True)
class SampleMark:
    """The mark of a sample."""

    row: int  # of the sample in the score file
    sample_id: str
    mark: Mark
    label: str | None = None  # name of the new class of a sample that is relabelled
    order: str = ""  # in which the samples were looked at, as in `MarkedSample`
    at: float = 0.0  # seconds since 1970; 0 until it is stored

    @property
    def decision(self) -> tuple[Mark, str | None]:
        """Mark and label."""
        return self.mark, self.label


class MarkedMeanwhile(Exception):
    """A sample has another mark than the caller has seen; nothing was changed.

    `current` has the marks of the samples by row, None for a sample without one.
    """

    def __init__(self, current: Mapping[int, SampleMark | None]) -> None:
        super().__init__("the samples were marked elsewhere meanwhile")
        self.current = current


@retry
def set_marks(
    engine: Engine,
    owner: str,
    job_id: str,
    changes: Mapping[int, SampleMark | None],
    seen: Mapping[int, tuple[Mark, str | None] | None],
) -> None:
    """Stores or removes marks, all of them or none.

    A change to None removes the mark of a row. Rows that the caller has not `seen` are replaced
    whatever their mark is.

    Raises:
        MarkedMeanwhile: A mark is neither as seen nor already as requested.
    """
    with write_transaction(engine) as connection:
        if seen:
            current = _marks_of_rows(connection, owner, job_id, list(changes))
            before = {row: mark and mark.decision for row, mark in current.items()}
            # A retry after a lost confirmation finds its own change.
            done = {row: mark and mark.decision for row, mark in changes.items()}
            if any(before[row] not in (seen[row], done[row]) for row in seen):
                raise MarkedMeanwhile(current)
        at = now(connection)
        for rows in _parts(changes):
            connection.execute(delete(MARKS).where(_of(owner, job_id), MARKS.c.row.in_(rows)))
            values = [
                {
                    "job": job_id,
                    "owner": owner,
                    "row": row,
                    "sample_id": change.sample_id,
                    "mark": change.mark.value,
                    "label": change.label,
                    "order": change.order,
                    "at": at,
                }
                for row in rows
                if (change := changes[row]) is not None
            ]
            if values:
                connection.execute(insert(MARKS), values)


AT_A_TIME = 5000
"""Marks of one transaction where many are stored, which takes about 60 ms."""

PAUSE = 0.1
"""Seconds between two of them. A writer that waits for SQLite looks every 100 ms, after its first
tries; without the pause it would find the next transaction every time."""


class PartlyMarked(Exception):
    """Only some of many marks were stored; the same call stores them all.

    `reason` says why the next part was not.
    """

    def __init__(self, done: int, wanted: int, reason: DBAPIError) -> None:
        super().__init__(f"{done:,} of {wanted:,} samples were marked")
        self.reason = reason


def set_many_marks(
    engine: Engine, owner: str, job_id: str, changes: Mapping[int, SampleMark | None]
) -> None:
    """Stores or removes many marks in parts, between which other writers have their turn.

    A part is stored as by `set_marks`, whatever the marks are. One transaction of 100,000 marks
    would keep SQLite from all others for a second, and several one after the other for ever.

    Raises:
        PartlyMarked: A part was not stored after others were.
    """
    rows = list(changes)
    for done in range(0, len(rows), AT_A_TIME):
        if done and engine.dialect.name == "sqlite":
            time.sleep(PAUSE)
        part = {row: changes[row] for row in rows[done : done + AT_A_TIME]}
        try:
            set_marks(engine, owner, job_id, part, {})
        except DBAPIError as error:
            if not done:
                raise
            raise PartlyMarked(done, len(rows), error) from error


def marks_of_rows(
    engine: Engine, owner: str, job_id: str, rows: Iterable[int]
) -> dict[int, SampleMark | None]:
    """The mark of each of some rows, None where there is none."""
    with engine.connect() as connection:
        return _marks_of_rows(connection, owner, job_id, list(rows))


def _marks_of_rows(
    connection: Connection, owner: str, job_id: str, rows: Sequence[int]
) -> dict[int, SampleMark | None]:
    marks: dict[int, SampleMark | None] = dict.fromkeys(rows)
    for part in _parts(rows):
        query = select(MARKS).where(_of(owner, job_id), MARKS.c.row.in_(part))
        for row in connection.execute(query):
            marks[row.row] = _mark(row)
    return marks


def marks_by_owner(
    engine: Engine, owners: Iterable[str], job_id: str, row: int
) -> dict[str, SampleMark]:
    """The mark that each of some owners gave a sample, of those that gave one."""
    found = {}
    with engine.connect() as connection:
        for part in _parts(owners):
            # By the whole primary key: a job may have millions of marks.
            of_part = and_(MARKS.c.job == job_id, MARKS.c.owner.in_(part), MARKS.c.row == row)
            for each in connection.execute(select(MARKS).where(of_part)):
                found[each.owner] = _mark(each)
    return found


def list_marks(
    engine: Engine, owner: str, job_id: str, after: int = 0, limit: int | None = None
) -> list[SampleMark]:
    """Marks of an owner from a row on, in the order of the score file."""
    query = select(MARKS).where(_of(owner, job_id), MARKS.c.row >= after).order_by(MARKS.c.row)
    with engine.connect() as connection:
        return [_mark(row) for row in connection.execute(query.limit(limit))]


def marks_tables(engine: Engine, owner: str, job_id: str) -> Iterator[pa.Table]:
    """All marks of an owner, as `difficulty clean --marks` reads them, with the time of each.

    They come in the order of the score file and in parts, since there may be millions.
    """
    columns = (MARKS.c.sample_id, MARKS.c.mark, MARKS.c.label, MARKS.c.order, MARKS.c.at)
    query = select(*columns).where(_of(owner, job_id)).order_by(MARKS.c.row)
    with engine.connect().execution_options(yield_per=PART) as connection:
        for part in connection.execute(query).partitions():
            *texts, seconds = zip(*part, strict=True)
            times = np.round(1e6 * np.array(seconds)).astype(np.int64)
            yield pa.table([*texts, times], schema=MARKS_SCHEMA)


def count_marks(engine: Engine, owner: str, job_id: str) -> Counter[tuple[str, Mark]]:
    """Number of samples with each mark, by the order in which they were looked at."""
    columns = (MARKS.c.order, MARKS.c.mark)
    query = select(*columns, func.count()).where(_of(owner, job_id)).group_by(*columns)
    with engine.connect() as connection:
        found = connection.execute(query)
        return Counter({(order, Mark(mark)): number for order, mark, number in found})


def by_mark(counts: Mapping[tuple[Any, Mark], int]) -> dict[Mark, int]:
    """Number of samples with each mark, whatever the order in which they were looked at."""
    numbers = dict.fromkeys(MARK_KINDS, 0)
    for (_, mark), number in counts.items():
        numbers[mark] += number
    return numbers


def numbers_of_marks(engine: Engine, owner: str, job_ids: Sequence[str]) -> dict[str, int]:
    """Number of the marks of an owner in each of some jobs that have any."""
    of_jobs = and_(MARKS.c.owner == owner, MARKS.c.job.in_(job_ids))
    number = func.count().label("number")
    query = select(MARKS.c.job, number).where(of_jobs).group_by(MARKS.c.job)
    with engine.connect() as connection:
        return {row.job: row.number for row in connection.execute(query)}


def marked_rows(
    engine: Engine, owner: str, job_id: str, mark: Mark | None = None
) -> NDArray[np.int64]:
    """Rows with a mark, or with any one, ascending."""
    query = select(MARKS.c.row).where(_of(owner, job_id)).order_by(MARKS.c.row)
    if mark is not None:
        query = query.where(MARKS.c.mark == mark.value)
    with engine.connect().execution_options(yield_per=PART) as connection:
        return np.fromiter(connection.execute(query).scalars(), np.int64)


def _mark(row: Row[Any]) -> SampleMark:
    return SampleMark(row.row, row.sample_id, Mark(row.mark), row.label, row.order, row.at)


MARKS_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("mark", pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("order", pa.string(), nullable=False),
        pa.field("marked_at", pa.timestamp("us", "UTC"), nullable=False),
    ]
)


def _of(owner: str, job_id: str) -> ColumnElement[bool]:
    return and_(MARKS.c.owner == owner, MARKS.c.job == job_id)


def _parts(values: Iterable[T]) -> Iterator[list[T]]:
    listed = list(values)
    return (listed[first : first + AT_ONCE] for first in range(0, len(listed), AT_ONCE))


Marked = Mapping[str, MarkedSample]  # what was decided about a sample, by its id


def requested_marks(
    engine: Engine,
    key: Principal,
    request: Mapping[str, Any],
    merged: Callable[[Job], Iterable[pa.Table]],
) -> Marked | None:
    """The marks that a request names, as they are now; None if it names none.

    They follow those that the named job has applied itself, so that each round of review builds
    on the one before. `merged` gives the decisions of all reviewers of a job, if they are wanted.
    """
    source_id = request.get("marks")
    if source_id is None:
        return None
    source = own_job(engine, key, source_id)
    if source is None:
        raise invalid(f"there is no job {source_id!r}", "GET /v1/jobs lists all", "marks")
    if source.state != "succeeded":
        state = f"job {source_id} has no marks: it is {source.state}"
        raise conflict(state, "name a job that succeeded", "marks")
    earlier = Marks(applied_marks(engine, source), ())
    number = MarkHistory(earlier, NO_MARKS).next_round
    new: dict[str, MarkedSample] = {}
    is_of_all = request.get("marks_of") == "all"
    for table in merged(source) if is_of_all else marks_tables(engine, key.owner, source_id):
        columns = (table[name].to_pylist() for name in ("sample_id", "mark", "label", "order"))
        for sample_id, mark, label, order in zip(*columns, strict=True):
            new[sample_id] = _marked_sample(mark, label, number, order)
    if not new:
        raise invalid(f"no image of job {source_id} is marked", "mark images first", "marks")
    return compose(MarkHistory(earlier, Marks(new, ()))).samples


def applied_marks(engine: Engine, job: Job) -> dict[str, MarkedSample]:
    """The marks that a job applies; empty if there are none."""
    query = select(APPLIED_MARKS.c.marks).where(APPLIED_MARKS.c.job == job.id)
    with engine.connect() as connection:
        text = connection.execute(query).scalar_one_or_none()
    stored = {} if text is None else json.loads(text)
    return {sample_id: _marked_sample(*values) for sample_id, values in stored.items()}


@lru_cache(maxsize=1024)
def _marked_sample(mark: str, label: str | None, round_: int | None, order: str) -> MarkedSample:
    # Of a million marks, few differ.
    return MarkedSample(Mark(mark), label, round=round_, order=order)


def encode_marks(marks: Marked | None) -> str | None:
    """The marks as they are stored with a job."""
    if marks is None:
        return None
    return json.dumps({each: _values_of(mark) for each, mark in marks.items()})


@lru_cache(maxsize=1024)
def _values_of(mark: MarkedSample) -> tuple[str, str | None, int | None, str]:
    return mark.mark.value, mark.label, mark.round, mark.order
