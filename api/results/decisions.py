"""What people decided about the samples of a job, as records of what the samples were then.

The database has what a person said of a row. Its id, its label and its content are those of the
score file, which never change, so they are put beside it only where a decision leaves the job.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from sqlalchemy import Engine

from api.http.principals import Principal
from api.http.problems import conflict, invalid
from api.jobs.marks import JobMarks, SampleMark, all_marks, encode_marks
from api.jobs.store import Job, own_job
from api.results.score_columns import ScoreColumns
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import SCHEMA, MarkedSample, to_table

MARKED_AT = pa.field("marked_at", pa.timestamp("us", "UTC"), nullable=False)
MARKS_SCHEMA = SCHEMA.append(MARKED_AT)


def to_records(marks: Sequence[SampleMark], scores: ScoreColumns) -> list[MarkedSample]:
    """What a person decided about samples, with the label and the content that they had."""
    rows = np.array([each.row for each in marks], np.int64)
    known = zip(marks, scores.label_names(rows), scores.contents_of(rows), strict=True)
    return [
        MarkedSample(
            mark.sample_id, mark.mark, mark.label, given, content, mark.order, scores.round
        )
        for mark, given, content in known
    ]


def marks_tables(
    engine: Engine, owner: str, job_id: str, scores: ScoreColumns
) -> Iterator[pa.Table]:
    """All marks of an owner as `MARKS_SCHEMA`, some at a time, in the order of the score file."""
    for marks in all_marks(engine, owner, job_id):
        times = pa.array(to_times([each.at for each in marks]), MARKED_AT.type)
        yield to_table(to_records(marks, scores)).append_column(MARKED_AT, times)


CLEANED_SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("original_label", pa.string()),
        pa.field("mark", pa.string()),
    ]
)
"""The columns of a cleaned list, as `difficulty clean` writes it."""


def cleaned_list(engine: Engine, owner: str, job_id: str, scores: ScoreColumns) -> pa.Table:
    """The samples of a job that are kept, with the labels that people decided on.

    `original_label` is the label in these scores, in which earlier rounds are applied already.
    """
    samples = scores.samples
    given = scores.label_names(np.arange(len(samples)))
    labels, decided = list(given), [None] * len(samples)
    marks: list[str | None] = [*decided]
    for batch in all_marks(engine, owner, job_id):
        for each in batch:
            marks[each.row], labels[each.row] = each.mark.value, each.label or given[each.row]
    columns = (samples.ids, labels, given, marks)
    arrays = [pa.array(column, pa.string()) for column in columns]
    table = pa.Table.from_arrays(arrays, schema=CLEANED_SCHEMA)
    is_dropped = pc.fill_null(pc.equal(table["mark"], Mark.DROP.value), fill_value=False)
    return table.filter(pc.invert(is_dropped))


def to_times(seconds: Sequence[float] | NDArray[np.float64]) -> NDArray[np.int64]:
    """Microseconds since 1970."""
    times: NDArray[np.int64] = np.round(1e6 * np.asarray(seconds)).astype(np.int64)
    return times


def requested_marks(
    engine: Engine,
    key: Principal,
    request: Mapping[str, Any],
    decided: Callable[[Job], Iterable[pa.Table]],
) -> bytes | None:
    """The marks that a request names, as they are now, of `encode_marks`; None if it names none.

    They follow those that the named job has applied itself, so that each round of review builds
    on the one before.

    Args:
        decided: The decisions about the samples of a job, as `SCHEMA`.
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
    later = [table.select(SCHEMA.names) for table in decided(source)]
    tables = JobMarks(engine, source.id).table(), pa.concat_tables([SCHEMA.empty_table(), *later])
    if not any(map(len, tables)):
        raise invalid(f"no image of job {source_id} is marked", "mark images first", "marks")
    return encode_marks(*tables)
