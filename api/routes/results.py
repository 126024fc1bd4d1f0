"""Results of a job: its score file, pages of scores, what has no score, and thumbnails."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.http.byte_ranges import (
    PARTIAL,
    UNCHANGED,
    RequestedBytes,
    parse_range,
    small_file,
)
from api.http.problems import conflict, gone, not_found, unreadable
from api.http.public_text import hide_paths, public_names
from api.jobs.files import ERRORS_FILE, SCORES_FILE, TAGS_FILE, open_stored, open_stored_parquet
from api.jobs.missing_table import read_missing, read_region_picture
from api.jobs.store import Job
from api.results.conditions import ALIKE, ImageQuery, alike_keys, matching_rows
from api.results.score_pages import SORTABLE, BadQuery, PageQuery, read_page
from api.results.thumbnails import Wanted
from api.routes.callers import Caller, Reader, Writer
from api.routes.conditions import Filter, as_problem, beside, searched
from api.routes.jobs import address, find_job, owned_job
from api.services import services_of
from api.storage.artifacts import Artifacts
from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.bodies.marks import ListOrder
from difficulty_service.bodies.results import (
    ErrorPage,
    MissingPublic,
    ScorePage,
    ScoreRow,
    TagList,
    TagPublic,
    UnreadableImage,
)
from difficulty_service.scores.score_columns import MEASURES, measure_of
from difficulty_service.settings.option_types import MOST_SAMPLES

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"])

PARQUET = "application/vnd.apache.parquet"
CHUNK = 1 << 20
LONGEST_PAGE = 1000
LARGEST_OFFSET = 2**53
DOUBTED: ListOrder = "doubtful"
"""Order by what the pages doubt labels by, whichever column that is."""

TextHeader = Annotated[str | None, Header(max_length=1000)]
Place = Annotated[
    int, Path(ge=0, le=MOST_SAMPLES, description="Place of the region in the list, from 0")
]
BYTES = {"schema": {"type": "string", "format": "binary"}}
NOT_FINISHED: dict[int | str, dict[str, Any]] = {409: {}, 410: {}, 500: {}}
FILE_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "The whole file", "content": {PARQUET: BYTES}},
    206: {"description": "The requested bytes", "content": {PARQUET: BYTES}},
    304: {"description": "The client has it already"},
    416: {},
    **NOT_FINISHED,
}


def require_succeeded(job: Job) -> Job:
    """A job, if it has results."""
    if job.state == "succeeded" and job.result is not None:
        return job
    unfinished = job.state in ("queued", "running")
    raise conflict(
        f"job {job.id} is {job.state}, so it has no results",
        "wait until its state is succeeded" if unfinished else "see its `error`; submit a new job",
    )


def succeeded_job(job_id: str, caller: Reader) -> Job:
    """The succeeded job of an address."""
    return require_succeeded(find_job(job_id, caller))


def owned_result(job_id: str, caller: Writer) -> Job:
    """The succeeded job of an address, to which the caller may add."""
    return require_succeeded(owned_job(job_id, caller))


def searched_job(job_id: str, caller: Reader) -> Job:
    """The succeeded job of an address that looked for missing boxes."""
    job = succeeded_job(job_id, caller)
    if job.wanted.missing_boxes is None:
        raise conflict(
            f"job {job.id} did not look for missing boxes",
            "submit its dataset again with `missing_boxes`, the number of images to search",
        )
    return job


SucceededJob = Annotated[Job, Depends(succeeded_job)]
OwnedResult = Annotated[Job, Depends(owned_result)]
SearchedJob = Annotated[Job, Depends(searched_job)]


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
    job: SucceededJob,
    request: Request,
    range_: Annotated[str | None, Header(alias="Range", max_length=1000)] = None,
    if_range: TextHeader = None,
    if_none_match: TextHeader = None,
) -> Response:
    """The Parquet file as it was written, or one range of its bytes."""
    assert job.result is not None  # noqa: S101 - because it succeeded
    size = job.result.scores_bytes
    etag = f'"{job.result.scores_sha256}"'
    headers = {"ETag": etag, "Accept-Ranges": "bytes", "Cache-Control": "private, no-cache"}
    part = parse_range(size, etag, requested=range_, if_range=if_range, none_match=if_none_match)
    if part.status == UNCHANGED:
        return Response(status_code=UNCHANGED, headers=headers)
    headers |= {
        "Content-Length": str(part.stop - part.start),
        "Content-Disposition": f'attachment; filename="{job.id}.parquet"',
    }
    if part.status == PARTIAL:
        headers["Content-Range"] = f"bytes {part.start}-{part.stop - 1}/{size}"
    file = await run_in_threadpool(open_stored, services_of(request).artifacts, job, SCORES_FILE)
    if request.method == "HEAD":
        file.close()
        return Response(status_code=part.status, headers=headers, media_type=PARQUET)
    return StreamingResponse(file_chunks(file, part), part.status, headers, PARQUET)


@dataclass(frozen=True)
class _Place:
    """A page among the scores that fulfil conditions, as its address names it."""

    sort: str
    label: str | None
    limit: int
    after: str | None


@router.get(
    "/scores",
    summary="Pages of scores",
    responses=NOT_FINISHED,
    response_model_exclude_unset=True,  # columns that were not computed
)
async def read_scores(  # noqa: PLR0913, PLR0917 - one parameter for each part of the request
    job: SucceededJob,
    caller: Reader,
    query: Filter,
    sort: Annotated[
        str,
        Query(
            max_length=100,
            description=f"{', '.join(SORTABLE)}; with `-`, largest first; {DOUBTED}: the most "
            f"doubtful labels first; or, with `like` or `text`, {ALIKE}: the most similar first; "
            f"default: the first of {', '.join(MEASURES)} that there is, largest first",
        ),
    ] = "",
    label: Annotated[str | None, Query(max_length=1000, description="Name or index")] = None,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 100,
    after: Annotated[
        str | None, Query(max_length=100, description="`next` of the previous page")
    ] = None,
) -> ScorePage:
    """The hardest samples first by default; samples without a value come last.

    Where there are columns beside the scores, `is.NAME=VALUE`, `has.NAME=TEXT`, `min.NAME=NUMBER`
    and `max.NAME=NUMBER` (or a date) are conditions, too. `is.image_fault=blurred` lists blurred
    images, `is.image_fault=(some)` all with a fault.
    """
    place = _Place(sort, label, limit, after)
    return await searched(caller, query, _page_of_scores, job, caller, query, place)


def _page_of_scores(job: Job, caller: Caller, query: ImageQuery, place: _Place) -> ScorePage:
    sort = place.sort
    given = {name: value for name, value in query.conditions.items() if name != "sort"}
    is_of_all = given == {"verified": "all"}
    with open_stored_parquet(caller.services.artifacts, job, SCORES_FILE) as file:
        try:
            only = keys = None
            if not is_of_all or sort == DOUBTED:
                samples = caller.services.open_scores.get(job).samples
                keys = -samples.concerns if sort == DOUBTED else None
            if not is_of_all:
                about = beside(caller, job, query)
                only = matching_rows(samples, query, about)
                if sort == ALIKE and (query.like or query.text):
                    keys = alike_keys(samples, query, about)
            conditions = None if is_of_all else sorted(given.items())
            sort = sort or f"-{measure_of(file.schema_arrow.names)}"
            wanted = PageQuery(sort, place.label, place.limit, place.after, only, keys, conditions)
            page = read_page(file, wanted)
        except BadQuery as error:
            raise as_problem(error) from None
    thumbnails = f"{address(job)}/thumbnails"
    rows = [
        ScoreRow(**row, thumbnail=f"{thumbnails}/{quote(row['sample_id'], safe='')}")
        for row in page.rows
    ]
    return ScorePage(samples=rows, matching=page.matching, next=page.next)


@router.get("/errors", summary="What has no score", responses=NOT_FINISHED)
def read_errors(
    job: SucceededJob,
    request: Request,
    limit: Annotated[int, Query(ge=1, le=LONGEST_PAGE)] = 100,
    after: Annotated[
        int, Query(ge=0, le=LARGEST_OFFSET, description="`next` of the previous page")
    ] = 0,
) -> ErrorPage:
    """Unreadable images and entries of the dataset that are no samples, each with the reason."""
    with open_stored_parquet(services_of(request).artifacts, job, ERRORS_FILE) as file:
        total = file.metadata.num_rows
        rows = _slice(file, after, limit)
    end = after + len(rows)
    return ErrorPage(
        errors=[UnreadableImage(**row) for row in rows],
        total=total,
        next=end if end < total else None,
    )


@router.get("/tags", summary="Numbers of each tag", responses=NOT_FINISHED)
def read_tags(job: SucceededJob, request: Request) -> TagList:
    """How many tags are wrong and missing, of a job that judged tags."""
    if job.wanted.tags is None:
        raise conflict(f"job {job.id} judged labels, not tags", "see its scores")
    return tags_of(services_of(request).artifacts, job)


def tags_of(artifacts: Artifacts, job: Job) -> TagList:
    """The numbers of each tag of a succeeded job that judged tags."""
    with open_stored_parquet(artifacts, job, TAGS_FILE) as file:
        return TagList(tags=[TagPublic(**row) for row in file.read().to_pylist()])


@router.get("/missing", summary="Regions without a box", responses=NOT_FINISHED)
def read_missing_boxes(job: SearchedJob, request: Request) -> MissingPublic:
    """Regions that look like an object and have no box, of a job that looked for them."""
    found = read_missing(services_of(request).artifacts, job)
    names = public_names(services_of(request).settings)
    warnings = tuple(hide_paths(warning, names) for warning in found.warnings)
    return found.model_copy(update={"warnings": warnings})


@router.get(
    "/missing/{number}.webp",
    summary="A picture of a region without a box",
    response_class=Response,
    responses={200: {"content": {"image/webp": BYTES}}, 404: {}, **NOT_FINISHED},
)
def read_missing_picture(job: SearchedJob, number: Place, request: Request) -> Response:
    """The region with some of what is around it."""
    picture = read_region_picture(services_of(request).artifacts, job, number)
    if picture is None:
        raise not_found("region", str(number))
    headers = {"Cache-Control": "private, max-age=86400, immutable"}
    return Response(picture, media_type="image/webp", headers=headers)


async def file_chunks(file: pa.NativeFile, part: RequestedBytes) -> AsyncIterator[bytes]:
    """The bytes of a part of a file, which is closed after them."""
    position = part.start
    try:
        while position < part.stop:
            number = min(CHUNK, part.stop - position)
            chunk = await run_in_threadpool(file.read_at, number, position)
            if not chunk:
                raise OSError("the file is shorter than recorded")
            position += len(chunk)
            yield chunk
    finally:
        await run_in_threadpool(file.close)


def _slice(file: pq.ParquetFile, start: int, number: int) -> list[dict[str, Any]]:
    """Some rows of a file, without keeping the others in memory."""
    rows: list[dict[str, Any]] = []
    first = 0
    for batch in file.iter_batches():
        inside = batch.slice(min(max(start - first, 0), len(batch)))
        rows += inside.slice(0, number - len(rows)).to_pylist()
        first += len(batch)
        if len(rows) == number:
            break
    return rows


JPEG = "image/jpeg"


@router.get(
    "/thumbnails/{sample_id:path}",
    summary="A thumbnail of an image",
    response_class=Response,
    responses={
        200: {"description": "A JPEG", "content": {JPEG: BYTES}},
        304: {"description": "The client has it already"},
        **NOT_FINISHED,
    },
)
async def read_thumbnail(
    job: SucceededJob,
    sample_id: str,
    caller: Reader,
    size: Annotated[int, Query(ge=16, le=512, description="Pixels of the longer side")] = 128,
) -> Response:
    """Created on the first request; images are shrunk, never enlarged."""
    try:
        answer = await send_thumbnail(caller, Wanted(job, sample_id, size))
    except ImageError as error:
        names = public_names(caller.services.settings)
        raise unreadable(
            f"{sample_id[:200]}: {hide_paths(error.problem, names)}",
            "see the job's errors for all such images",
        ) from None
    except DatasetError:
        raise gone("the dataset of this job can no longer be read", "submit it again") from None
    if answer is None:
        raise not_found("sample", sample_id[:200])
    return answer


async def send_thumbnail(caller: Caller, wanted: Wanted) -> Response | None:
    """The JPEG of a thumbnail; one that must be made waits for the caller's turn.

    None if there is no such sample. Errors are those of `Thumbnails.make`, and a `Problem` where
    the caller waits for too many thumbnails.
    """
    services = caller.services
    try:
        path = await run_in_threadpool(services.thumbnails.stored, wanted)
        if path is None:
            queue, make = services.queues.thumbnails, services.thumbnails.make
            path = await caller.in_turn(queue, make, wanted)
        if path is None:
            return None
        return await run_in_threadpool(small_file, caller.request, path, JPEG)
    except FileNotFoundError:  # the job was deleted meanwhile
        raise not_found("job", wanted.job.id) from None


async def read_text(caller: Caller, wanted: Wanted) -> str | None:
    """The beginning of a text, in place of a thumbnail, like `send_thumbnail`."""
    services = caller.services
    queue, read = services.queues.thumbnails, services.thumbnails.read_text
    return await caller.in_turn(queue, read, wanted)
