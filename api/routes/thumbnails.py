"""Thumbnails of the images of a job, made when they are first asked for."""

from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response
from starlette.concurrency import run_in_threadpool

from api.http.api_keys import Principal, ReadKey, client_of
from api.http.byte_ranges import small_file
from api.http.fair_queue import FairQueue
from api.http.problems import Problem, not_found
from api.http.public_text import hide_paths, public_names
from api.results.thumbnails import Thumbnails, Wanted
from api.routes.results import BYTES, NOT_FINISHED, succeeded_job
from difficulty_service.base.errors import DatasetError, ImageError

router = APIRouter(prefix="/v1/jobs/{job_id}", tags=["results"])

JPEG = "image/jpeg"


@router.get(
    "/thumbnails/{sample_id:path}",
    summary="A thumbnail of an image",
    response_class=Response,
    responses={
        200: {"description": "A JPEG", "content": {JPEG: BYTES}},
        206: {"description": "The requested bytes", "content": {JPEG: BYTES}},
        304: {"description": "The client has it already"},
        416: {},
        **NOT_FINISHED,
    },
)
async def read_thumbnail(
    job_id: str,
    sample_id: str,
    request: Request,
    key: ReadKey,
    size: Annotated[int, Query(ge=16, le=512, description="Pixels of the longer side")] = 128,
) -> Response:
    """Created on the first request; images are shrunk, never enlarged."""
    job = await run_in_threadpool(succeeded_job, request, key, job_id)
    try:
        answer = await send_thumbnail(request, key, Wanted(job, sample_id, size))
    except ImageError as error:
        names = public_names(request.app.state.settings)
        raise Problem(
            422,
            "unreadable",
            f"{sample_id[:200]}: {hide_paths(error.problem, names)}",
            "see the job's errors for all such images",
        ) from None
    except DatasetError:
        raise Problem(
            410, "gone", "the dataset of this job can no longer be read", "submit it again"
        ) from None
    if answer is None:
        raise not_found("sample", sample_id[:200])
    return answer


async def send_thumbnail(request: Request, key: Principal, wanted: Wanted) -> Response | None:
    """The JPEG of a thumbnail; one that must be made waits for the caller's turn.

    None if there is no such sample. Errors are those of `Thumbnails.make`, and a `Problem` where
    the caller waits for too many thumbnails.
    """
    try:
        path = await _find_thumbnail(request, key, wanted)
        if path is None:
            return None
        return await run_in_threadpool(small_file, request, path, JPEG)
    except FileNotFoundError:  # the job was deleted meanwhile
        raise not_found("job", wanted.job.id) from None


async def read_text(request: Request, key: Principal, wanted: Wanted) -> str | None:
    """The beginning of a text, in place of a thumbnail, like `send_thumbnail`."""
    thumbnails: Thumbnails = request.app.state.thumbnails
    turns: FairQueue = request.app.state.thumbnail_queue
    client = client_of(key.owner, request.scope)
    with turns.request(client):
        return await turns.run(client, thumbnails.read_text, wanted)


async def _find_thumbnail(request: Request, key: Principal, wanted: Wanted) -> Path | None:
    thumbnails: Thumbnails = request.app.state.thumbnails
    turns: FairQueue = request.app.state.thumbnail_queue
    path = await run_in_threadpool(thumbnails.stored, wanted)
    if path is not None:
        return path
    client = client_of(key.owner, request.scope)
    with turns.request(client):
        return await turns.run(client, thumbnails.make, wanted)
