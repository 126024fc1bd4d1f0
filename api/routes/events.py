"""What happens to a job, as it happens: a stream that browsers and curl can follow."""

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.http.api_keys import KeyWatch
from api.http.event_streams import EventStream
from api.http.parameters import parse_decimal
from api.http.principals import Principal
from api.http.problems import Problem, invalid, not_found
from api.jobs.store import Event, events_after, visible_job
from api.routes.callers import Reader
from api.routes.jobs import FoundJob
from difficulty_service.bodies.jobs import FINAL_STATES

POLL_SECONDS = 0.5
PAGE = 500


@dataclass(frozen=True)
class Subscription:
    """The events of a job that a client does not have yet."""

    engine: Engine
    job_id: str
    last_id: int  # of the last event that the client has; 0 for none
    is_stopping: Callable[[], bool]  # whether to end although the job is not finished
    watch: KeyWatch
    stream: EventStream


async def new_events(subscription: Subscription) -> AsyncIterator[Event]:
    """Every event after the last one that the client has, in order; ends with the job.

    Raises a `Problem` where the caller may no longer see it.
    """
    engine, job_id, last_id = subscription.engine, subscription.job_id, subscription.last_id
    while not subscription.is_stopping():
        subscription.stream.check()
        await subscription.watch.check()
        viewer = subscription.watch.principal
        is_finished, events = await run_in_threadpool(_poll, engine, viewer, job_id, last_id, PAGE)
        for event in events:
            yield event
            last_id = event.id
        if len(events) == PAGE:
            continue
        if is_finished:
            return
        await anyio.sleep(POLL_SECONDS)


def _poll(
    engine: Engine, viewer: Principal, job_id: str, last_id: int, limit: int
) -> tuple[bool, list[Event]]:
    """Whether a job that the caller sees is finished, and a page of its next events."""
    # In this order: an event that is written in between is found the next time.
    job = visible_job(engine, viewer, job_id)
    if job is None:
        raise not_found("job", job_id)
    return job.state in FINAL_STATES, events_after(engine, job_id, last_id, limit)


router = APIRouter(tags=["jobs"])

LARGEST_ID = 2**63 - 1
NO_CONTENT = 204
ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The events, one after the other: `event` is state, progress or warning, "
        "`data` a JSON object with `at` in seconds since 1970; `event` is problem, and `data` a "
        "problem, where the key is revoked, the job is deleted or no longer shared with it, or the "
        "stream makes room for one of another key"
    },
    NO_CONTENT: {
        "description": "The job is finished and its last event is known: do not reconnect"
    },
}


async def subscribe(
    job: FoundJob,
    response: Response,
    caller: Reader,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event received; browsers send it")
    ] = None,
    after: Annotated[
        int | None, Query(ge=0, le=LARGEST_ID, description="The same, for other clients")
    ] = None,
) -> AsyncIterator[Subscription]:
    """Checks whether a job can be followed, before the answer begins."""
    services = caller.services
    last_id = _last_id(last_event_id, after)
    engine = services.engine
    is_finished, following = await run_in_threadpool(_poll, engine, caller.key, job.id, last_id, 1)
    if is_finished and not following:
        raise HTTPException(NO_CONTENT)
    response.headers["Cache-Control"] = "no-store"
    watch = KeyWatch(engine, caller.key, job.root)
    with services.event_streams.opened(caller.key.owner) as stream:
        yield Subscription(engine, job.id, last_id, services.is_stopping, watch, stream)


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

    The last one is a problem where the key is revoked, the job is deleted or no longer shared with
    it, or the stream makes room for one of another key in the meantime.
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
        raise invalid(
            "Last-Event-ID is not the id of an event",
            "send the `id` of an event received, or leave the header out",
            field="Last-Event-ID",
        )
    return last_id
