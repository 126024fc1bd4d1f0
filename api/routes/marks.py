"""Marks of a job's samples, which `difficulty clean --marks` reads."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from tempfile import TemporaryFile
from typing import Annotated, BinaryIO, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from fastapi import APIRouter, Query, Response
from sqlalchemy import Engine
from sqlalchemy.exc import IntegrityError
from starlette.responses import StreamingResponse

from api.http.problem_responses import problem_of
from api.http.problems import Problem, conflict, invalid, not_found
from api.jobs.marks import (
    MarkedMeanwhile,
    PartlyMarked,
    SampleMark,
    by_mark,
    count_marks,
    list_marks,
    set_many_marks,
    set_marks,
)
from api.jobs.store import Job
from api.results.decisions import (
    CLEANED_SCHEMA,
    MARKS_SCHEMA,
    cleaned_list,
    marks_tables,
    to_records,
)
from api.results.reviews import MERGED_SCHEMA, open_review
from api.results.score_columns import ScoreColumns
from api.routes.callers import Caller, Reader, Writer
from api.routes.results import BYTES, CHUNK, NOT_FINISHED, PARQUET, OwnedResult, SucceededJob
from api.routes.reviewers import require_overseer
from api.services import Services
from api.storage.tables import FINAL
from difficulty_service.base.tables import csv_writer
from difficulty_service.bodies import marks as bodies
from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import SCHEMA
from difficulty_service.scores.samples import ScoredSamples

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["marks"])

MEDIA_TYPES = {"csv": "text/csv; charset=utf-8", "parquet": PARQUET}
TIED = "Difficulty-Tied"
"""Header of merged marks: number of samples that they leave out, as reviewers are split."""

LONGEST_PAGE = 1000
MOST_AT_ONCE = 100_000  # number of samples that can be marked at once
REMEDY = "see the score file of the job"


@router.get("/marks", summary="Marks of samples", responses=NOT_FINISHED)
def read_marks(
    job: SucceededJob,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 100,
    after: Annotated[
        int, Query(ge=0, le=bodies.LARGEST_ROW, description="`next` of the previous page")
    ] = 0,
) -> bodies.MarkPage:
    """The marks of this key, in the order of the score file."""
    services = caller.services
    engine = services.engine
    following = list_marks(engine, caller.key.owner, job.id, after, limit + 1)
    is_last = len(following) <= limit
    return bodies.MarkPage(
        marks=_public(following[:limit], services.open_scores.get(job)),
        counts=_counts(engine, caller.key.owner, job),
        next=None if is_last else following[limit].row,
    )


@router.post("/marks", summary="Mark samples", responses=NOT_FINISHED)
def change_marks(
    caller: Writer, job: SucceededJob, body: bodies.MarkChanges
) -> bodies.MarksChanged:
    """Stores or removes up to 1000 marks of this key, all of them or none."""
    apply_changes(caller.services, caller.key.owner, job, body.marks)
    return bodies.MarksChanged(counts=_counts(caller.services.engine, caller.key.owner, job))


@router.post("/decisions", summary="Decide finally about samples", responses=NOT_FINISHED)
def decide(job: OwnedResult, body: bodies.MarkChanges, caller: Writer) -> bodies.MarksChanged:
    """Stores or removes up to 1000 final decisions, which count whatever reviewers decided.

    For the owner of the job and keys with the scope admin.
    """
    apply_changes(caller.services, FINAL, job, body.marks)
    return bodies.MarksChanged(counts=_counts(caller.services.engine, FINAL, job))


Of = Annotated[
    Literal["own", "all"],
    Query(description="Marks of this key, or `all` for the merged decisions of all reviewers"),
]


@router.get(
    "/marks.csv",
    summary="Marks as CSV",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **NOT_FINISHED},
)
async def export_csv(job: SucceededJob, caller: Reader, of: Of = "own") -> Response:
    """A file for `difficulty clean --marks`, which spreadsheets can open as well.

    Merged, the header `Difficulty-Tied` has the number of samples without a decision.
    """
    return await _download(job, caller, of, "csv")


@router.get(
    "/marks.parquet",
    summary="Marks as Parquet",
    response_class=Response,
    responses={200: {"content": {PARQUET: BYTES}}, **NOT_FINISHED},
)
async def export_parquet(job: SucceededJob, caller: Reader, of: Of = "own") -> Response:
    """A file for `difficulty clean --marks`."""
    return await _download(job, caller, of, "parquet")


@router.get(
    "/cleaned.csv",
    summary="Cleaned list as CSV",
    response_class=Response,
    responses={200: {"content": {"text/csv": {"schema": {"type": "string"}}}}, **NOT_FINISHED},
)
async def export_cleaned(job: SucceededJob, caller: Reader) -> Response:
    """The samples that this key has not dropped, with the labels that it decided on.

    Columns are `sample_id`, `label`, `original_label` and `mark`.
    """
    services = caller.services

    def tables() -> tuple[Iterable[pa.Table], pa.Schema]:
        scores = services.open_scores.get(job)
        return [cleaned_list(services.engine, caller.key.owner, job.id, scores)], CLEANED_SCHEMA

    return await _send(job, caller, tables, "cleaned", "csv")


def apply_changes(
    services: Services, owner: str, job: Job, changes: Sequence[bodies.MarkChange]
) -> None:
    """Stores or removes the marks of some samples, unless one was marked elsewhere meanwhile.

    `owner` is the reviewer, or FINAL.
    """
    samples = services.open_scores.get(job).samples
    rows = _rows_of(samples, changes)
    names = set(samples.names.values())
    marks: dict[int, SampleMark | None] = {}
    seen: dict[int, tuple[Mark, str | None] | None] = {}
    for index, (row, change) in enumerate(zip(rows, changes, strict=True)):
        decision, marks[row] = change.decision, None
        label = None if decision is None else decision.label
        is_known = label is None or label in names
        if not is_known and not (samples.takes_new_classes and str(label).strip()):
            field = f"marks.{index}.decision.label"
            raise invalid(f"there is no class {str(label)[:100]!r}", REMEDY, field=field)
        if decision is not None:
            require_mark(samples, decision.mark, f"marks.{index}.decision.mark")
            sample_id = samples.ids[row].as_py()
            marks[row] = SampleMark(row, sample_id, decision.mark, decision.label, change.order)
        if "seen" in change.model_fields_set:
            known = change.seen
            seen[row] = None if known is None else (known.mark, known.label)
    try:
        set_marks(services.engine, owner, job.id, marks, seen)
    except MarkedMeanwhile as error:
        raise conflict(str(error), "read the marks again, then decide", field="marks") from None
    except IntegrityError:
        raise not_found("job", job.id) from None  # it was deleted meanwhile


def mark_many(
    engine: Engine, owner: str, job: Job, changes: Mapping[int, SampleMark | None]
) -> None:
    """Stores or removes the marks of many samples, in parts between which others write."""
    try:
        set_many_marks(engine, owner, job.id, changes)
    except IntegrityError:
        raise not_found("job", job.id) from None  # it was deleted meanwhile
    except PartlyMarked as error:
        if isinstance(error.reason, IntegrityError):
            raise not_found("job", job.id) from None
        problem = problem_of(error.reason)
        raise replace(
            problem,
            detail=f"{error}: {problem.detail}",
            remedy=f"{problem.remedy}; then mark the same again",
        ) from error


def require_few(number: int) -> None:
    """Refuses to mark more samples at once than can be marked."""
    if number > MOST_AT_ONCE:
        raise Problem(
            422,
            "too-large",
            f"{number:,} images are more than the {MOST_AT_ONCE:,} that can be marked at once",
            "narrow the filters, or use `difficulty clean --drop` with a condition",
        )


def require_mark(samples: ScoredSamples, mark: Mark, field: str) -> None:
    """Refuses a mark that these samples cannot have."""
    if mark not in samples.mark_kinds:
        raise invalid(
            f"only boxes of objects can be marked {mark}, and these samples are none",
            f"use {', '.join(samples.mark_kinds)}",
            field=field,
        )


def _counts(engine: Engine, owner: str, job: Job) -> bodies.MarkCounts:
    return bodies.MarkCounts.of(by_mark(count_marks(engine, owner, job.id)))


def _rows_of(samples: ScoredSamples, changes: Sequence[bodies.MarkChange]) -> list[int]:
    wanted = [change.sample_id for change in changes if change.sample_id is not None]
    found: dict[str, int] = {}
    if wanted:
        mask = pc.is_in(samples.ids, value_set=pa.array(wanted, pa.string()))
        places = np.flatnonzero(mask.to_numpy(zero_copy_only=False)).tolist()
        found = {samples.ids[row].as_py(): row for row in places}
    rows = []
    for index, change in enumerate(changes):
        row = change.row if change.sample_id is None else found.get(change.sample_id)
        if row is None or row >= len(samples):
            name = change.row if change.sample_id is None else change.sample_id[:100]
            raise invalid(f"there is no sample {name!r}", REMEDY, field=f"marks.{index}")
        rows.append(row)
    return rows


def _write_csv(tables: Iterable[pa.Table], schema: pa.Schema, file: BinaryIO) -> None:
    file.write(b"\xef\xbb\xbf")  # by which spreadsheets recognise UTF-8
    with csv_writer(file, schema) as write:
        for table in tables:
            write(table)


def _write_parquet(tables: Iterable[pa.Table], schema: pa.Schema, file: BinaryIO) -> None:
    with pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for table in tables:
            writer.write_table(table)


WRITERS = {"csv": _write_csv, "parquet": _write_parquet}


async def _download(job: Job, caller: Caller, of: str, ending: str) -> Response:
    if of == "all":
        require_overseer(caller.key, job)
    services, headers = caller.services, dict[str, str]()

    def tables() -> tuple[Iterable[pa.Table], pa.Schema]:
        engine, open_scores = services.engine, services.open_scores
        if of == "all":
            review = open_review(engine, open_scores, job)
            headers[TIED] = str(len(review.merged.tied))
            return review.merged_tables(), MERGED_SCHEMA
        return marks_tables(engine, caller.key.owner, job.id, open_scores.get(job)), MARKS_SCHEMA

    answer = await _send(job, caller, tables, "marks", ending)
    answer.headers.update(headers)
    return answer


async def _send(
    job: Job,
    caller: Caller,
    tables: Callable[[], tuple[Iterable[pa.Table], pa.Schema]],
    name: str,
    ending: str,
) -> Response:
    services = caller.services

    def written() -> BinaryIO:
        parts, schema = tables()
        # On the disk, as there may be millions; without a name, so that nothing can be left of it.
        with ExitStack() as stack:
            file = stack.enter_context(TemporaryFile(dir=services.settings.data_dir))
            WRITERS[ending](parts, schema, file)
            stack.pop_all()  # the answer closes it
        return file

    file = await caller.in_turn(services.queues.marks, written)
    # Where there is one job only, commands name the file without its id.
    prefix = f"{job.id}-" if services.settings.takes_jobs else ""
    headers = {
        "Cache-Control": "no-store",
        "Content-Disposition": f'attachment; filename="{prefix}{name}.{ending}"',
        "Content-Length": str(file.tell()),
    }
    return StreamingResponse(_pieces(file), 200, headers, MEDIA_TYPES[ending])


def _pieces(file: BinaryIO) -> Iterator[bytes]:
    with file:
        file.seek(0)
        while piece := file.read(CHUNK):
            yield piece


def _public(marks: Sequence[SampleMark], scores: ScoreColumns) -> list[bodies.MarkPublic]:
    return [
        bodies.MarkPublic(
            row=mark.row,
            **{name: getattr(record, name) for name in SCHEMA.names},
            at=datetime.fromtimestamp(mark.at, UTC),
        )
        for mark, record in zip(marks, to_records(marks, scores), strict=True)
    ]
