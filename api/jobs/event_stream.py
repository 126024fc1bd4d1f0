"""The events of a job as a stream that browsers and curl can follow (server-sent events)."""

import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import anyio
from sqlalchemy import Engine
from starlette.concurrency import run_in_threadpool

from api.http.problems import Problem
from api.jobs.rows import Event
from api.jobs.store import events_after, get_job
from api.storage.tables import FINAL_STATES

POLL_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
KEEP_ALIVE = b": still here\n\n"  # so that no proxy takes the connection for dead
PAGE = 500
RETRY_AFTER = 10  # seconds


class EventStreams:
    """Counts the streams that are open, so that nobody has all of them.

    Args:
        most: In all.
        most_of_one: Of one owner.
    """

    def __init__(self, most: int = 200, most_of_one: int = 20) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._open: Counter[str] = Counter()

    @contextmanager
    def one_more(self, owner: str) -> Iterator[None]:
        """Counts one while it is open; only to be used on the event loop."""
        self._open[owner] += 1
        try:
            yield
        finally:
            self._open[owner] -= 1
            self._open += Counter()  # forgets the owners that have none

    def require_room(self, owner: str) -> None:
        """Refuses one more.

        Raises:
            Problem: There are too many already.
        """
        if self._open[owner] >= self._most_of_one or self._open.total() >= self._most:
            raise Problem(
                429,
                "too-many-requests",
                f"{self._open[owner]} event streams of this key are open",
                "close some, or ask GET /v1/jobs/{id} now and then",
                headers={"Retry-After": str(RETRY_AFTER)},
            )


@dataclass(frozen=True)
class Watched:
    """A job and from where on it is watched.

    Attributes:
        engine: The database.
        job_id: Of the job.
        last_id: Of the last event that is known already; 0 for none.
        is_over: Whether the stream should end although the job goes on.
    """

    engine: Engine
    job_id: str
    last_id: int
    is_over: Callable[[], bool]


async def stream_events(watched: Watched) -> AsyncIterator[bytes]:
    """Every event after the last one known, in order, each once; ends with the job.

    Yields:
        Events and, when there is none for long, comments.
    """
    last_id, last_sent = watched.last_id, time.monotonic()
    while not watched.is_over():
        goes_on, events = await run_in_threadpool(_look, watched, last_id)
        if events:
            yield b"".join(encode_event(event) for event in events)
            last_id, last_sent = events[-1].id, time.monotonic()
        elif not goes_on:
            return
        elif time.monotonic() - last_sent >= KEEP_ALIVE_SECONDS:
            yield KEEP_ALIVE
            last_sent = time.monotonic()
        if len(events) < PAGE and goes_on:
            await anyio.sleep(POLL_SECONDS)


def encode_event(event: Event) -> bytes:
    """An event in the form of the stream."""
    data = json.dumps({"at": event.at, **event.data}, separators=(",", ":"), allow_nan=False)
    return f"id: {event.id}\nevent: {event.kind}\ndata: {data}\n\n".encode()


def is_complete(engine: Engine, job_id: str, last_id: int) -> bool:
    """Whether the job is finished and no event came after this one."""
    job = get_job(engine, None, job_id)
    is_final = job is None or job.state in FINAL_STATES
    return is_final and not events_after(engine, job_id, last_id, 1)


def _look(watched: Watched, last_id: int) -> tuple[bool, list[Event]]:
    """Whether the job goes on, and a page of its next events."""
    # In this order: an event that is written between is found the next time.
    job = get_job(watched.engine, None, watched.job_id)
    goes_on = job is not None and job.state not in FINAL_STATES
    return goes_on, events_after(watched.engine, watched.job_id, last_id, PAGE)
