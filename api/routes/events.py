"""What happens to a job, as it happens: a stream that browsers and curl can follow."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from api.http.api_keys import KeyWatch, ReadKey
from api.http.parameters import parse_decimal
from api.http.principals import Principal
from api.http.problems import Problem, invalid, not_found, too_many
from api.jobs.store import Event, events_after, visible_job
from api.routes.jobs import find_job
from difficulty_service.bodies.jobs import FINAL_STATES

POLL_SECONDS = 0.5
PAGE = 500
RETRY_AFTER = 10  # seconds
SHARES = 10  # of keys that have all the streams they may have, when all are taken


@dataclass(eq=False)
class EventStream:
    """A stream that is open, until it has to make room for one of another key."""

    makes_room: bool = False

    def check(self) -> None:
        """Raises a `Problem` where the stream has to make room."""
        if self.makes_room:
            raise _too_many("this one made room for that of a key with fewer")


class EventStreams:
    """The open streams, of which each key has a share, however many another one opens.

    A key may have `share` streams. Where all of them are taken, one of a key with at least two
    fewer than the key with the most takes the place of the oldest of that key. So no key is
    without one that others could spare, and no two keys displace each other for ever.
    """

    def __init__(self, share: int = 20, most: int | None = None) -> None:
        self._share = share
        self._most = SHARES * share if most is None else most
        self._open: dict[str, deque[EventStream]] = {}

    def number_of(self, owner: str) -> int:
        """Number of open streams of a key."""
        return len(self._open.get(owner, ()))

    @contextmanager
    def opened(self, owner: str) -> Iterator[EventStream]:
        """Counts a stream while it is open; refused where too many are. For the event loop only."""
        number = self.number_of(owner)
        if number >= self._share:
            raise _too_many(f"{number} event streams of this key are open")
        if sum(map(len, self._open.values())) >= self._most:
            self._make_room(number)
        stream = EventStream()
        self._open.setdefault(owner, deque()).append(stream)
        try:
            yield stream
        finally:
            if not stream.makes_room:
                self._remove(owner, stream)

    def _make_room(self, number: int) -> None:
        """Ends the oldest stream of the key with the most, for one of a key with `number`."""
        largest = max(self._open, key=lambda each: len(self._open[each]))
        if len(self._open[largest]) < number + 2:
            raise _too_many(f"all {self._most} event streams are open, and {number} of this key")
        oldest = self._open[largest][0]
        oldest.makes_room = True
        self._remove(largest, oldest)

    def _remove(self, owner: str, stream: EventStream) -> None:
        self._open[owner].remove(stream)
        if not self._open[owner]:
            del self._open[owner]


def _too_many(detail: str) -> Problem:
    return too_many(
        detail,
        "close some, or ask GET /v1/jobs/{id} now and then",
        headers={"Retry-After": str(RETRY_AFTER)},
    )


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
    job = await run_in_threadpool(find_job, request, key, job_id)
    last_id = _last_id(last_event_id, after)
    is_finished, following = await run_in_threadpool(_poll, state.engine, key, job.id, last_id, 1)
    if is_finished and not following:
        raise HTTPException(NO_CONTENT)
    response.headers["Cache-Control"] = "no-store"
    watch = KeyWatch(state.engine, key, job.root)
    with state.event_streams.opened(key.owner) as stream:
        yield Subscription(state.engine, job_id, last_id, state.stopping, watch, stream)


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
