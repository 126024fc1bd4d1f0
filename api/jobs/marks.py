"""Marks that people give to the samples of a finished job, and those that another job applies.

A job keeps the latter as they were when it was submitted, whatever changes later.
"""

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sqlalchemy import (
    ColumnElement,
    Connection,
    Engine,
    Row,
    and_,
    delete,
    func,
    insert,
    select,
    update,
)
from sqlalchemy.exc import DBAPIError

from api.storage.database import now, retry, write_transaction
from api.storage.tables import APPLIED_MARKS, JOBS, MARKS
from difficulty_service.marks.mark_kinds import MARK_KINDS, Mark
from difficulty_service.marks.record import (
    SCHEMA,
    MarkedSample,
    MarkHistory,
    Marks,
    from_table,
    to_table,
)

BATCH = 20_000  # marks that are in memory at once where all are read
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
    def choice(self) -> tuple[Mark, str | None]:
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
            before = {row: mark and mark.choice for row, mark in current.items()}
            # A retry after a lost confirmation finds its own change.
            done = {row: mark and mark.choice for row, mark in changes.items()}
            if any(before[row] not in (seen[row], done[row]) for row in seen):
                raise MarkedMeanwhile(current)
        at = now(connection)
        for rows in _batches(changes):
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

    `reason` says why the next batch was not.
    """

    def __init__(self, done: int, wanted: int, reason: DBAPIError) -> None:
        super().__init__(f"{done:,} of {wanted:,} samples were marked")
        self.reason = reason


def set_many_marks(
    engine: Engine, owner: str, job_id: str, changes: Mapping[int, SampleMark | None]
) -> None:
    """Stores or removes many marks in batches, between which other writers have their turn.

    A batch is stored as by `set_marks`, whatever the marks are. One transaction of 100,000 marks
    would keep SQLite from all others for a second, and several one after the other for ever.

    Raises:
        PartlyMarked: A batch was not stored after others were.
    """
    rows = list(changes)
    for done in range(0, len(rows), AT_A_TIME):
        if done and engine.dialect.name == "sqlite":
            time.sleep(PAUSE)
        batch = {row: changes[row] for row in rows[done : done + AT_A_TIME]}
        try:
            set_marks(engine, owner, job_id, batch, {})
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
    for batch in _batches(rows):
        query = select(MARKS).where(_of(owner, job_id), MARKS.c.row.in_(batch))
        for row in connection.execute(query):
            marks[row.row] = _mark(row)
    return marks


def marks_by_owner(
    engine: Engine, owners: Iterable[str], job_id: str, row: int
) -> dict[str, SampleMark]:
    """The mark that each of some owners gave a sample, of those that gave one."""
    found = {}
    with engine.connect() as connection:
        for batch in _batches(owners):
            # By the whole primary key: a job may have millions of marks.
            of_batch = and_(MARKS.c.job == job_id, MARKS.c.owner.in_(batch), MARKS.c.row == row)
            for each in connection.execute(select(MARKS).where(of_batch)):
                found[each.owner] = _mark(each)
    return found


def list_marks(
    engine: Engine, owner: str, job_id: str, after: int = 0, limit: int | None = None
) -> list[SampleMark]:
    """Marks of an owner from a row on, in the order of the score file."""
    query = select(MARKS).where(_of(owner, job_id), MARKS.c.row >= after).order_by(MARKS.c.row)
    with engine.connect() as connection:
        return [_mark(row) for row in connection.execute(query.limit(limit))]


def all_marks(engine: Engine, owner: str, job_id: str) -> Iterator[list[SampleMark]]:
    """All marks of an owner, in the order of the score file, in batches: there may be millions."""
    query = select(MARKS).where(_of(owner, job_id)).order_by(MARKS.c.row)
    with engine.connect().execution_options(yield_per=BATCH) as connection:
        for batch in connection.execute(query).partitions():
            yield [_mark(row) for row in batch]


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
    with engine.connect().execution_options(yield_per=BATCH) as connection:
        return np.fromiter(connection.execute(query).scalars(), np.int64)


def _mark(row: Row[Any]) -> SampleMark:
    return SampleMark(row.row, row.sample_id, Mark(row.mark), row.label, row.order, row.at)


def _of(owner: str, job_id: str) -> ColumnElement[bool]:
    return and_(MARKS.c.owner == owner, MARKS.c.job == job_id)


def _batches(values: Iterable[T]) -> Iterator[list[T]]:
    listed = list(values)
    return (listed[first : first + AT_ONCE] for first in range(0, len(listed), AT_ONCE))


@dataclass(frozen=True)
class JobMarks:
    """The decisions that a job applies, as it was submitted with them, then as it applied them."""

    engine: Engine
    job_id: str
    attempt: int = 0  # attempt of the job that applies them; 0 where they are only read

    def table(self) -> pa.Table:
        """The decisions as `SCHEMA`, with IS_LATER; none where the job applies none."""
        query = select(APPLIED_MARKS.c.marks).where(APPLIED_MARKS.c.job == self.job_id)
        with self.engine.connect() as connection:
            stored = connection.execute(query).scalar_one_or_none()
        if stored is None:
            return _with_place(SCHEMA.empty_table(), is_later=False)
        return pq.read_table(pa.BufferReader(stored))

    def read(self) -> MarkHistory:
        """The decisions; none where the job applies none."""
        table = self.table()
        is_later = table[IS_LATER]
        return MarkHistory(
            Marks.of(from_table(table.filter(pc.invert(is_later)))),
            Marks.of(from_table(table.filter(is_later))),
        )

    @retry
    def remember(self, marks: Iterable[MarkedSample], /) -> None:
        """Keeps the decisions with the samples that they were applied to.

        An attempt that has lost its job changes nothing.
        """
        encoded = encode_marks(to_table(marks), SCHEMA.empty_table())
        own = select(JOBS.c.id).where(JOBS.c.id == self.job_id, JOBS.c.attempt == self.attempt)
        change = update(APPLIED_MARKS).where(APPLIED_MARKS.c.job.in_(own)).values(marks=encoded)
        with write_transaction(self.engine) as connection:
            connection.execute(change)


IS_LATER = "is_later"
"""Column of applied marks: whether they are new, and not those that were applied before."""


def encode_marks(earlier: pa.Table, later: pa.Table) -> bytes:
    """Decisions of `SCHEMA` as they are stored with the job that applies them: Parquet.

    They stay tables, since there may be millions.
    """
    every = [_with_place(earlier, is_later=False), _with_place(later, is_later=True)]
    sink = pa.BufferOutputStream()
    pq.write_table(pa.concat_tables(every), sink, compression="zstd")
    return sink.getvalue().to_pybytes()


def _with_place(marks: pa.Table, *, is_later: bool) -> pa.Table:
    place = pa.repeat(pa.scalar(is_later), len(marks))
    return marks.select(SCHEMA.names).append_column(IS_LATER, place)
