"""Jobs: submitted, listed, read, cancelled, deleted."""

import math
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated, Literal

import pyarrow as pa
from fastapi import APIRouter, Depends, Header, Query, Response
from starlette.concurrency import run_in_threadpool

from api.http.parameters import read_cursor, write_cursor
from api.http.problems import Problem, conflict, forbidden, invalid, not_found
from api.jobs import store
from api.jobs.files import delete_finished
from api.jobs.store import Job
from api.jobs.submission import submit_limits, validate_submission
from api.results.decisions import marks_tables, requested_marks
from api.results.reviews import open_review
from api.routes.callers import Caller, Reader, Writer
from api.storage.tables import is_id
from difficulty_service.bodies.jobs import FINAL_STATES, JobCreate, JobPage, JobProgress, JobPublic

router = APIRouter(prefix="/v1/jobs", tags=["jobs"])

LONGEST_PAGE = 200
CURSOR = ">d26s"  # time and id
RETRY_AFTER = 30  # seconds; a place in a full queue becomes free with a whole job
LOCATION = {"headers": {"Location": {"schema": {"type": "string"}}}}

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=200,
        pattern="^[\x20-\x7e]+$",
        description="The same key and body give the same job; the same key with another body, 409",
    ),
]


@router.post(
    "",
    status_code=202,
    summary="Submit a dataset to be scored",
    responses={
        202: LOCATION,
        200: LOCATION | {"model": JobPublic, "description": "The job was submitted before"},
        409: {},
    },
)
async def create(
    body: JobCreate, response: Response, caller: Writer, idempotency_key: IdempotencyKey = None
) -> JobPublic:
    """Queues a job; `Location` is its address."""
    job, is_new = await submit_job(body, caller, idempotency_key)
    response.status_code = 202 if is_new else 200
    response.headers["Location"] = address(job)
    return public(job)


async def submit_job(
    body: JobCreate, caller: Caller, idempotency_key: str | None
) -> tuple[Job, bool]:
    """Queues a job, unless one with this idempotency key exists; says whether it is new."""
    if body.marks is None:
        return await run_in_threadpool(_submit, body, caller, idempotency_key)
    # There may be millions of marks, which take seconds of a processor and hundreds of megabytes.
    queue = caller.services.queues.marks
    return await caller.in_turn(queue, _submit, body, caller, idempotency_key)


def _submit(body: JobCreate, caller: Caller, idempotency_key: str | None) -> tuple[Job, bool]:
    services = caller.services
    engine, settings = services.engine, services.settings
    validated = validate_submission(body, settings, engine, caller.key)

    open_scores = services.open_scores

    def decided(job: Job) -> Iterator[pa.Table]:
        if validated.get("marks_of") == "all":
            return open_review(engine, open_scores, job).merged_tables()
        return marks_tables(engine, caller.key.owner, job.id, open_scores.get(job))

    marks = requested_marks(engine, caller.key, validated, decided)
    limits = submit_limits(engine, settings, caller.key.owner)
    try:
        return store.submit(engine, caller.key.owner, validated, idempotency_key, limits, marks)
    except store.IdempotencyConflict as error:
        raise conflict(
            str(error), "send the same body as before, or another key", field="Idempotency-Key"
        ) from None
    except store.TooManyJobs as error:
        raise Problem(
            429,
            "too-many-jobs",
            str(error),
            "wait until some have started, or cancel some",
            headers={"Retry-After": str(RETRY_AFTER)},
        ) from None


@router.get("", summary="List jobs")
def list_all(
    caller: Reader,
    state: Literal["queued", "running", "succeeded", "failed", "cancelled"] | None = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 50,
    before: Annotated[
        str | None, Query(max_length=100, description="`next` of the previous page")
    ] = None,
    owner: Annotated[
        str | None,
        Query(max_length=100, description="Id of the key whose jobs to list; needs scope read-all"),
    ] = None,
) -> JobPage:
    """Newest first, a page at a time: those of the key and those that are shared with it.

    With the scope read-all, those of all keys.
    """
    if owner is not None:
        caller.key.require("read-all")
    cursor = None if before is None else last_of_page(before)
    jobs = store.list_jobs(
        caller.services.engine,
        owner,
        viewer=caller.key,
        state=state,
        limit=limit + 1,
        before=cursor,
    )
    page, is_last = jobs[:limit], len(jobs) <= limit
    return JobPage(
        jobs=[public(job) for job in page], next=None if is_last else cursor_after(page[-1])
    )


def find_job(job_id: str, caller: Reader) -> Job:
    """The job of an address."""
    job = store.visible_job(caller.services.engine, caller.key, job_id)
    if job is None:
        raise not_found("job", job_id[:100])
    return job


def owned_job(job_id: str, caller: Writer) -> Job:
    """A job that the caller may share, cancel and delete, and about which it decides finally."""
    job = find_job(job_id, caller)
    if not caller.key.manages(job.owner):
        raise forbidden(
            f"job {job_id} belongs to another key", "use that key, or one with the scope admin"
        )
    return job


FoundJob = Annotated[Job, Depends(find_job)]
OwnedJob = Annotated[Job, Depends(owned_job)]


@router.get("/{job_id}", summary="State and progress of a job")
def read(job: FoundJob) -> JobPublic:
    """The whole job, with links to its events and results."""
    return public(job)


@router.delete(
    "/{job_id}",
    status_code=204,
    summary="Cancel a job, or delete a finished one",
    responses={
        200: {
            "model": JobPublic,
            "description": "It was queued, and is cancelled; or, with `only_cancel`, is finished",
        },
        202: {"model": JobPublic, "description": "It was running, and will be cancelled"},
        204: {"description": "It was finished, and is deleted with its files"},
    },
    response_model=None,
)
def remove(
    job: OwnedJob,
    caller: Writer,
    only_cancel: Annotated[  # noqa: FBT002
        bool, Query(description="Keep a finished job, which is then the answer")
    ] = False,
) -> Response:
    """Cancels a job within seconds if it is not finished; otherwise deletes it permanently."""
    services = caller.services
    engine = services.engine
    if job.state not in FINAL_STATES:
        cancelled = store.request_cancel(engine, job.owner, job.id)
        if cancelled is None:
            raise not_found("job", job.id)
        status = 202 if cancelled.state == "running" else 200
        body = public(cancelled).model_dump_json()
        return Response(body, status, media_type="application/json")
    if only_cancel:
        return Response(public(job).model_dump_json(), 200, media_type="application/json")
    delete_finished(engine, services.settings, services.artifacts, job.owner, job.id)
    return Response(status_code=204)


def public(job: Job) -> JobPublic:
    """The public form of a job."""
    return JobPublic(
        id=job.id,
        owner=job.owner,
        state=job.state,
        cancel_requested=job.cancel_requested,
        progress=_progress(job),
        attempts=job.attempt,
        max_attempts=job.max_attempts,
        created_at=_moment(job.created_at),
        started_at=None if job.started_at is None else _moment(job.started_at),
        finished_at=None if job.finished_at is None else _moment(job.finished_at),
        request=dict(job.request),
        error=job.error,
        result=job.result,
        links=_links(job),
    )


def address(job: Job) -> str:
    """Path of a job."""
    return f"{router.prefix}/{job.id}"


def _progress(job: Job) -> JobProgress:
    seconds_left = None
    if job.state == "running" and job.rate and job.total is not None:
        seconds_left = round(max(job.total - job.done, 0) / job.rate, 1)
    return JobProgress(
        done=job.done,
        total=job.total,
        bad=job.bad,
        rate=job.rate,
        seconds_left=seconds_left,
        download=job.download,
    )


def _links(job: Job) -> dict[str, str]:
    own = address(job)
    links = {"self": own, "events": f"{own}/events"}
    if job.state != "succeeded":
        return links
    links |= {name: f"{own}/{name}" for name in ("scores.parquet", "scores", "errors")}
    can_score = job.wanted.fits_gaussians
    return links | ({"score": f"/v1/gaussians/{job.id}/score"} if can_score else {})


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def cursor_after(job: Job) -> str:
    """Cursor of the page that follows this job."""
    # Eight bytes represent the time exactly; a few decimal digits would not.
    return write_cursor(CURSOR, job.created_at, job.id.encode())


def last_of_page(text: str) -> store.Cursor:
    """The last job of the page before."""
    created_at, packed = read_cursor(CURSOR, text) or (math.nan, b"")
    job_id = packed.decode(errors="replace")
    if not is_id(job_id) or math.isnan(created_at):
        raise invalid(
            "this is not a cursor",
            "pass `next` of the previous page unchanged, or leave `before` out",
            field="before",
        )
    return store.Cursor(created_at, job_id)
