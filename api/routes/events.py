"""What happens to a job, as it happens."""

from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.http.api_keys import KeyWatch, ReadKey
from api.http.decimals import parse_decimal
from api.http.problems import Problem
from api.jobs.event_stream import EventStreams, Subscription, is_complete, new_events
from api.routes.jobs import find_job

router = APIRouter(tags=["jobs"])

LARGEST_ID = 2**63 - 1
NO_CONTENT = 204
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The events, one after the other: `event` is state, progress or warning, "
        "`data` a JSON object with `at` in seconds since 1970; `event` is problem, and `data` a "
        "problem, where the key is revoked in the meantime"
    },
    NO_CONTENT: {
        "description": "The job is finished and its last event is known: do not reconnect"
    },
}


async def subscribe(
    job_id: str,
    request: Request,
    response: Response,
    key: ReadKey,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event received; browsers send it")
    ] = None,
    after: Annotated[
        int | None, Query(ge=0, le=LARGEST_ID, description="The same, for other clients")
    ] = None,
) -> AsyncIterator[Subscription]:
    """Checks whether a job can be followed, before the answer begins."""
    state = request.app.state
    await run_in_threadpool(find_job, request, key, job_id)
    last_id = _last_id(last_event_id, after)
    if await run_in_threadpool(is_complete, state.engine, job_id, last_id):
        raise HTTPException(NO_CONTENT)
    response.headers["Cache-Control"] = "no-store"
    streams: EventStreams = state.event_streams
    with streams.opened(key.owner):
        watch = KeyWatch(state.engine, key.owner)
        yield Subscription(state.engine, job_id, last_id, state.stopping, watch)


@router.get(
    "/v1/jobs/{job_id}/events",
    summary="Follow a job",
    responses=ANSWERS,
    response_class=EventSourceResponse,
)
async def follow(
    subscription: Annotated[Subscription, Depends(subscribe)],
) -> AsyncIterator[ServerSentEvent]:
    """Server-sent events, from the beginning or from the last one received; ends with the job.

    The last one is a problem where the key is revoked in the meantime.
    """
    try:
        async for event in new_events(subscription):
            data = {"at": event.at, **event.data}
            yield ServerSentEvent(id=str(event.id), event=event.kind, data=data)
    except Problem as problem:
        yield ServerSentEvent(event="problem", data=problem.body())


def _last_id(header: str | None, after: int | None) -> int:
    """Id of the event to resume after; the header counts, which a browser sends on reconnecting."""
    if not header:
        return after or 0
    last_id = parse_decimal(header, LARGEST_ID)
    if last_id is None:
        raise Problem(
            422,
            "invalid-request",
            "Last-Event-ID is not the id of an event",
            "send the `id` of an event received, or leave the header out",
            field="Last-Event-ID",
        )
    return last_id
