"""What is asked of finished jobs together: copies across them, what changed, what to choose."""

from typing import Annotated

import pyarrow as pa
from fastapi import APIRouter, Path, Query, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.http.byte_ranges import RequestedBytes
from api.http.problems import Problem, invalid, not_found
from api.jobs.comparisons import StoredComparison
from api.jobs.store import Job, visible_job
from api.results.comparisons import (
    CLASSES_FILE,
    MARKS_FILE,
    TABLE_FILE,
    Asked,
    described,
)
from api.routes.callers import Caller, Reader, Writer
from api.routes.jobs import LONGEST_PAGE
from api.routes.results import (
    BYTES,
    NOT_FINISHED,
    PARQUET,
    OwnedResult,
    SucceededJob,
    file_chunks,
)
from difficulty_service.bodies.comparison_kinds import COMPARISON_PATTERN
from difficulty_service.bodies.comparisons import (
    ComparisonCreate,
    ComparisonList,
    ComparisonPublic,
    comparison_of,
)
from difficulty_service.bodies.jobs import ID_PATTERN

router = APIRouter(prefix="/v1/jobs/{job_id}/comparisons", tags=["comparisons"])

ComparisonId = Annotated[str, Path(pattern=COMPARISON_PATTERN)]
FILE = {200: {"content": {PARQUET: BYTES}}, **NOT_FINISHED}


@router.post(
    "",
    status_code=202,
    summary="Compare a job with others, or choose samples of it",
    responses={
        200: {"model": ComparisonPublic, "description": "It was asked before and is ready"},
        **NOT_FINISHED,
    },
)
def compare(
    job: OwnedResult, body: ComparisonCreate, response: Response, caller: Writer
) -> ComparisonPublic:
    """Finds it in the background; ask for its address until its state is not `running`.

    `leaks` finds samples of the training set of this job that other jobs have as tests, `diff` what
    differs from an older version, `select` what to label next or to keep, and other packages may
    add more. They take the options of the commands of these names.
    """
    found = begin(caller, job, body)
    response.status_code = 202 if found.state == "running" else 200
    return found


@router.get("", summary="Comparisons of a job", responses=NOT_FINISHED)
def list_comparisons(
    job: SucceededJob,
    caller: Reader,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 50,
    before: Annotated[
        str | None,
        Query(pattern=COMPARISON_PATTERN, description="`next` of the previous page"),
    ] = None,
) -> ComparisonList:
    """What was asked of the job and is not deleted, the latest first, a page at a time.

    Those with jobs that the key does not see are not listed.
    """
    found = caller.services.comparisons.list(caller.key, job)
    ids = [each.id for each in found]
    if before is not None and before not in ids:
        raise not_found("comparison", before)
    start = 0 if before is None else ids.index(before) + 1
    page = found[start : start + limit]
    is_last = start + limit >= len(found)
    return ComparisonList(
        comparisons=[described(job, each) for each in page],
        next=None if is_last else page[-1].id,
    )


@router.get("/{comparison_id}", summary="A comparison of jobs", responses=NOT_FINISHED)
def read(job: SucceededJob, comparison_id: ComparisonId, caller: Reader) -> ComparisonPublic:
    """How far it is, or what was found."""
    return caller.services.comparisons.get(caller.key, job, comparison_id)


@router.delete(
    "/{comparison_id}", status_code=204, summary="Delete a comparison", responses=NOT_FINISHED
)
def remove(job: OwnedResult, comparison_id: ComparisonId, caller: Writer) -> None:
    """Deletes what was found; one that is being made is stopped."""
    caller.services.comparisons.delete(caller.key, job, comparison_id)


@router.get(
    "/{comparison_id}/table.parquet",
    summary="Table of a comparison",
    response_class=Response,
    responses=FILE,
)
async def read_table(
    job: SucceededJob, comparison_id: ComparisonId, caller: Reader
) -> StreamingResponse:
    """The pairs, changes or chosen samples, as the commands write them with `--out`."""
    return await _send(caller, job, comparison_id, TABLE_FILE)


@router.get(
    "/{comparison_id}/classes.parquet",
    summary="Table of the classes of a comparison",
    response_class=Response,
    responses=FILE,
)
async def read_classes(
    job: SucceededJob, comparison_id: ComparisonId, caller: Reader
) -> StreamingResponse:
    """How far each class moved, where there are more classes than the result lists."""
    return await _send(caller, job, comparison_id, CLASSES_FILE)


@router.get(
    "/{comparison_id}/marks.parquet",
    summary="Marks that drop samples",
    response_class=Response,
    responses=FILE,
)
async def read_marks(
    job: SucceededJob,
    comparison_id: ComparisonId,
    caller: Reader,
    of: Annotated[
        str | None,
        Query(
            alias="job",
            pattern=ID_PATTERN,
            description="Job whose samples to drop; default: this one",
        ),
    ] = None,
) -> StreamingResponse:
    """Marks for `difficulty clean`: of `leaks` they drop copies, of `select` what is not chosen."""
    return await _send(caller, job, comparison_id, MARKS_FILE.format(of or job.id))


def begin(caller: Caller, job: Job, body: ComparisonCreate) -> ComparisonPublic:
    """The comparison of a request, which is begun unless it is there."""
    named = comparison_of(body).others
    others = [_other(caller, job, other, named.field) for other in named.named_in(body)]
    if len({each.id for each in others}) < len(others):
        raise invalid("a job is named twice", "name each once", named.field)
    asked = Asked(body, [job, *others], _before(caller, job, body))
    return caller.services.comparisons.request(caller.key, asked)


def _before(caller: Caller, job: Job, body: ComparisonCreate) -> StoredComparison | None:
    """The earlier answer that a request goes on from."""
    asked = comparison_of(body)
    named = None if asked.earlier is None else getattr(body, asked.earlier)
    if named is None:
        return None
    try:
        before = caller.services.comparisons.find(caller.key, job, named)
    except Problem:
        before = None
    if before is None or before.request["kind"] != asked.kind or before.state != "succeeded":
        raise invalid(
            f"there is no finished {asked.kind} {named!r} of this job",
            f"GET /v1/jobs/{job.id}/comparisons lists them",
            asked.earlier,
        )
    return before


def _other(caller: Caller, job: Job, job_id: str, field: str) -> Job:
    """Another finished job that a request names."""
    if job_id == job.id:
        raise invalid("a job cannot be compared with itself", "name another job", field)
    found = visible_job(caller.services.engine, caller.key, job_id)
    if found is None:
        raise invalid(f"there is no job {job_id!r}", "GET /v1/jobs lists all", field)
    if found.state != "succeeded":
        raise invalid(f"job {job_id} is {found.state}", "name a job that succeeded", field)
    if found.wanted.modality != job.wanted.modality:
        raise invalid(
            f"job {job_id} has {found.kind}s, job {job.id} {job.kind}s",
            f"name a job with {job.kind}s",
            field,
        )
    return found


async def _send(caller: Caller, job: Job, comparison_id: str, name: str) -> StreamingResponse:
    file: pa.NativeFile = await run_in_threadpool(
        caller.services.comparisons.open, caller.key, job, comparison_id, name
    )
    size = file.size()
    headers = {
        "Content-Length": str(size),
        "Content-Disposition": f'attachment; filename="{comparison_id[:8]}-{name}"',
        "Cache-Control": "private, no-cache",
    }
    return StreamingResponse(file_chunks(file, RequestedBytes(200, 0, size)), 200, headers, PARQUET)
