"""The events of a job, over streams that may break."""

import json
import time
from collections.abc import Iterator
from http import HTTPStatus

import httpx2

from difficulty_service.base.errors import ServiceError
from difficulty_service.bodies.jobs import JobEvent
from difficulty_service.bodies.service import ProblemSchema
from difficulty_service.client.connection import (
    Patience,
    ServiceConnection,
    from_problem,
    out_of_reach,
)

STEADY_SECONDS = 10.0
"""A stream that lasts longer counts as progress, even without an event."""


def follow(connection: ServiceConnection, job_id: str, after: int) -> Iterator[JobEvent]:
    """The events that come after one of them, until the job ends; 0 for all.

    After a broken connection it goes on with the event that follows.
    """
    patience = Patience()
    while True:
        begun = time.monotonic()
        headers = {"Last-Event-ID": str(after)} if after else {}
        try:
            with connection.stream("GET", "/v1/jobs/{}/events", job_id, headers=headers) as stream:
                if stream.status_code == HTTPStatus.NO_CONTENT:
                    return
                for received in httpx2.EventSource(stream):
                    if received.event == "problem":
                        raise from_problem(ProblemSchema.model_validate_json(received.data))
                    if not received.data:
                        continue
                    event = event_of(received)
                    after = event.id
                    patience.renew()
                    yield event
                    if event.is_last:
                        return
            error = ServiceError("the service ended the stream of events", "ask for the job again")
        except httpx2.TransportError as failure:
            error = out_of_reach(failure)
        if time.monotonic() - begun > STEADY_SECONDS:
            patience.renew()
        patience.wait(error)


def event_of(received: httpx2.ServerSentEvent) -> JobEvent:
    """An event of a job, whose number and kind stand outside of its data."""
    values: dict[str, object] = json.loads(received.data)
    return JobEvent.model_validate(values | {"id": received.id, "kind": received.event})
