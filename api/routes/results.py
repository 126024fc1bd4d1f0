"""What came of a job: its score file, pages of it, the images that could not be read."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Annotated, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.responses import FileResponse
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.http.api_keys import Principal, ReadKey
from api.http.byte_ranges import PARTIAL, UNCHANGED, Unsatisfiable, Wanted, wanted_bytes
from api.http.problems import Problem, not_found
from api.jobs.failures import hide_paths, public_names
from api.jobs.files import ERRORS_FILE, SCORES_FILE
from api.jobs.rows import Job
from api.results.score_pages import SORTABLE, BadQuery, PageQuery, read_page
from api.results.thumbnails import Thumbnails
from api.routes.jobs import address, find_job
from api.schemas.results import ErrorPage, ScorePage, ScoreRow, UnreadableImage
from api.storage.artifacts import Artifacts
from difficulty_service.errors import DatasetError, ImageError

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"])

PARQUET = "application/vnd.apache.parquet"
JPEG = "image/jpeg"
CHUNK = 1 << 20
LONGEST_PAGE = 1000
LARGEST_OFFSET = 2**53
CACHED = "private, max-age=86400"

TextHeader = Annotated[str | None, Header(max_length=1000)]
BYTES = {"schema": {"type": "string", "format": "binary"}}
NOT_FINISHED: dict[int | str, dict[str, Any]] = {409: {}, 410: {}}
FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The whole file", "content": {PARQUET: BYTES}},
    206: {"description": "The bytes asked for", "content": {PARQUET: BYTES}},
    304: {"description": "The client has it already"},
    416: {},
    **NOT_FINISHED,
}


@router.get(
    "/scores.parquet", summary="The score file", responses=FILE_ANSWERS, response_class=Response
)
@router.head(
    "/scores.parquet",
    summary="Size of the score file",
    responses=FILE_ANSWERS,
    response_class=Response,
)
async def read_file(
    job_id: str,
    request: Request,
    key: ReadKey,
    asked: Annotated[str | None, Header(alias="Range", max_length=1000)] = None,
    if_range: TextHeader = None,
    if_none_match: TextHeader = None,
) -> Response:
    """The Parquet file as it was written; one range of bytes at a time may be asked for."""
    job = await run_in_threadpool(_finished, request, key, job_id)
    assert job.result is not None  # noqa: S101 - as it succeeded
    size = int(job.result["scores_bytes"])
    etag = f'"{job.result["scores_sha256"]}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    try:
        wanted = wanted_bytes(size, etag, asked=asked, only_if=if_range, none_match=if_none_match)
    except Unsatisfiable as error:
        raise Problem(
            416,
            "range-not-satisfiable",
            str(error),
            "ask for bytes that it has",
            field="Range",
            headers={"Content-Range": f"bytes */{size}"},
        ) from None
    if wanted.status == UNCHANGED:
        return Response(status_code=UNCHANGED, headers=headers)
    headers |= {
        "Content-Length": str(wanted.stop - wanted.start),
        "Content-Disposition": f'attachment; filename="{job.id}.parquet"',
    }
    if wanted.status == PARTIAL:
        headers["Content-Range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{size}"
    if request.method == "HEAD":
        return Response(status_code=wanted.status, headers=headers, media_type=PARQUET)
    file = await run_in_threadpool(_open, request, job, SCORES_FILE)
    return StreamingResponse(_chunks(file, wanted), wanted.status, headers, PARQUET)


@router.get("/scores", summary="Pages of scores", responses=NOT_FINISHED)
def read_scores(  # noqa: PLR0913, PLR0917 - one parameter for each part of the request
    job_id: str,
    request: Request,
    key: ReadKey,
    sort: Annotated[
        str,
        Query(max_length=100, description=f"{', '.join(SORTABLE)}; with `-`, largest first"),
    ] = "-rmd",
    label: Annotated[str | None, Query(max_length=1000, description="Name or index")] = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 100,
    after: Annotated[
        str | None, Query(max_length=100, description="`next` of the page before")
    ] = None,
) -> ScorePage:
    """The hardest samples first, unless asked otherwise; samples without a value come last."""
    job = _finished(request, key, job_id)
    with _parquet(request, job, SCORES_FILE) as file:
        try:
            page = read_page(file, PageQuery(sort, label, limit, after))
        except BadQuery as error:
            raise Problem(
                422, "invalid-request", str(error), "correct this field", field=error.field
            ) from None
    pictures = f"{address(job)}/thumbnails"
    rows = [
        ScoreRow(**row, thumbnail=f"{pictures}/{quote(row['sample_id'], safe='')}")
        for row in page.rows
    ]
    return ScorePage(samples=rows, matching=page.matching, next=page.next)


@router.get("/errors", summary="Images that could not be read", responses=NOT_FINISHED)
def read_errors(
    job_id: str,
    request: Request,
    key: ReadKey,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 100,
    after: Annotated[
        int, Query(ge=0, le=LARGEST_OFFSET, description="`next` of the page before")
    ] = 0,
) -> ErrorPage:
    """Each with the reason; they have no score."""
    job = _finished(request, key, job_id)
    with _parquet(request, job, ERRORS_FILE) as file:
        total = file.metadata.num_rows
        rows = _slice(file, after, limit)
    end = after + len(rows)
    return ErrorPage(
        errors=[UnreadableImage(**row) for row in rows],
        total=total,
        next=end if end < total else None,
    )


@router.get(
    "/thumbnails/{sample_id:path}",
    summary="A small picture of an image",
    response_class=Response,
    responses={200: {"description": "A JPEG", "content": {JPEG: BYTES}}, **NOT_FINISHED},
)
def read_thumbnail(
    job_id: str,
    sample_id: str,
    request: Request,
    key: ReadKey,
    size: Annotated[int, Query(ge=16, le=512, description="Pixels of the longer side")] = 128,
) -> Response:
    """Made when it is first asked for; larger images are made smaller, never the reverse."""
    job = _finished(request, key, job_id)
    thumbnails: Thumbnails = request.app.state.thumbnails
    try:
        path = thumbnails.get(job, sample_id, size)
    except ImageError as error:
        known = public_names(request.app.state.settings)
        raise Problem(
            422,
            "unreadable",
            f"{sample_id[:200]}: {hide_paths(error.problem, known)}",
            "see the job's errors for all such images",
        ) from None
    except DatasetError:
        raise Problem(
            410, "gone", "the dataset of this job cannot be read any more", "submit it again"
        ) from None
    if path is None:
        raise not_found("sample", sample_id[:200])
    return FileResponse(path, media_type=JPEG, headers={"Cache-Control": CACHED})


def _finished(request: Request, key: Principal, job_id: str) -> Job:
    """The job of an address, which has succeeded.

    Raises:
        Problem: There is none, it is another key's, or it has no results.
    """
    job = find_job(request, key, job_id)
    if job.state == "succeeded" and job.result is not None:
        return job
    waiting = job.state in ("queued", "running")
    raise Problem(
        409,
        "conflict",
        f"job {job.id} is {job.state}, so it has no results",
        "wait until its state is succeeded" if waiting else "see its `error`; submit a new job",
    )


def _open(request: Request, job: Job, name: str) -> pa.NativeFile:
    artifacts: Artifacts = request.app.state.artifacts
    assert job.result is not None  # noqa: S101 - as it succeeded
    try:
        return artifacts.open(f"{job.result['prefix']}/{name}")
    except FileNotFoundError:
        raise Problem(
            410, "gone", f"the files of job {job.id} are gone", "submit the dataset again"
        ) from None


@contextmanager
def _parquet(request: Request, job: Job, name: str) -> Iterator[pq.ParquetFile]:
    with _open(request, job, name) as opened, pq.ParquetFile(opened) as file:
        yield file


async def _chunks(file: pa.NativeFile, wanted: Wanted) -> AsyncIterator[bytes]:
    position = wanted.start
    try:
        while position < wanted.stop:
            number = min(CHUNK, wanted.stop - position)
            chunk = await run_in_threadpool(file.read_at, number, position)
            if not chunk:
                raise OSError("the file ends before its time")
            position += len(chunk)
            yield chunk
    finally:
        await run_in_threadpool(file.close)


def _slice(file: pq.ParquetFile, start: int, number: int) -> list[dict[str, Any]]:
    """Some rows of a file, without holding the others."""
    rows: list[dict[str, Any]] = []
    first = 0
    for batch in file.iter_batches():
        inside = batch.slice(min(max(start - first, 0), len(batch)))
        rows += inside.slice(0, number - len(rows)).to_pylist()
        first += len(batch)
        if len(rows) == number:
            break
    return rows
