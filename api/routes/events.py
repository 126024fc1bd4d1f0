"""What happens to a job, as it happens."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api.http.api_keys import ReadKey
from api.http.problems import Problem
from api.jobs.event_stream import EventStreams, Watched, is_complete, stream_events
from api.routes.jobs import find_job

router = APIRouter(tags=["jobs"])

LARGEST_ID = 2**63 - 1
MEDIA_TYPE = "text/event-stream"
EVENT = {
    "type": "object",
    "required": ["id", "event", "data"],
    "properties": {
        "id": {"type": "string", "description": "To go on behind it"},
        "event": {"enum": ["state", "progress", "warning"]},
        "data": {"type": "string", "description": "JSON: `at`, seconds since 1970, and what it is"},
    },
}
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The events, one after the other",
        "content": {MEDIA_TYPE: {"schema": EVENT}},
    },
    204: {"description": "The job is finished and its last event is known: do not come back"},
}
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}  # proxies may not hold it back


@router.get(
    "/v1/jobs/{job_id}/events",
    summary="Follow a job",
    responses=ANSWERS,
    response_class=Response,
)
async def follow(
    job_id: str,
    request: Request,
    key: ReadKey,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event received; browsers send it")
    ] = None,
    after: Annotated[
        int | None, Query(ge=0, le=LARGEST_ID, description="The same, for other clients")
    ] = None,
) -> Response:
    """Server-sent events, from the beginning or from the last one received; ends with the job."""
    state = request.app.state
    await run_in_threadpool(find_job, request, key, job_id)
    last_id = _last_id(last_event_id, after)
    if await run_in_threadpool(is_complete, state.engine, job_id, last_id):
        return Response(status_code=204)
    streams: EventStreams = state.event_streams
    streams.require_room(key.owner)
    watched = Watched(state.engine, job_id, last_id, state.stopping)

    async def counted() -> AsyncIterator[bytes]:
        with streams.one_more(key.owner):
            async for part in stream_events(watched):
                yield part

    return StreamingResponse(counted(), media_type=MEDIA_TYPE, headers=HEADERS)


def _last_id(header: str | None, after: int | None) -> int:
    """Where to go on; the header counts, which a browser sends when it comes back.

    Raises:
        Problem: The header is not the id of an event.
    """
    if not header:
        return after or 0
    if not (header.isascii() and header.isdigit()) or int(header[:20]) > LARGEST_ID:
        raise Problem(
            422,
            "invalid-request",
            "Last-Event-ID is not the id of an event",
            "send the `id` of an event received, or leave the header out",
            field="Last-Event-ID",
        )
    return int(header)
