"""Every request: in the log, in the metrics, and answered even where the unforeseen happens."""

import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problem_responses import answer, from_unexpected
from api.metrics import Metrics

QUIET_PATHS = ("/healthz", "/readyz", "/metrics")  # asked for every few seconds
ABORTED = 499  # the client went away; no answer has this status


@dataclass
class _Answer:
    """What has been sent so far."""

    send: Send
    status: int = 0
    size: int = 0
    began: float = field(default_factory=time.perf_counter)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self.size += len(message.get("body", b""))
        await self.send(message)


@dataclass(frozen=True)
class RequestsSeen:
    """Middleware that logs and counts requests, and answers 500 where nothing else answered.

    Attributes:
        app: What is behind it.
        metrics: Where requests are counted.
    """

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on a request and takes note of the answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = _Answer(send)
        try:
            await self._handle(scope, receive, given)
        finally:
            self._note(scope, given)

    async def _handle(self, scope: Scope, receive: Receive, given: _Answer) -> None:
        try:
            await self.app(scope, receive, given)
        except ClientDisconnect:
            given.status = ABORTED
        except Exception as error:
            structlog.get_logger().error("request-failed", exc_info=error)
            if given.status:
                # What was sent is not whole; the server closes the connection to say so.
                raise
            await answer(from_unexpected(), scope)(scope, receive, given)

    def _note(self, scope: Scope, given: _Answer) -> None:
        seconds = time.perf_counter() - given.began
        state: dict[str, Any] = scope.get("state", {})
        problem = state.get("problem")
        # Whoever goes away in the middle of an answer has seen its status.
        status = given.status or ABORTED
        self.metrics.see_request(scope, status, seconds, problem)
        quiet = scope["path"] in QUIET_PATHS and status < 400  # noqa: PLR2004 - no error
        log = structlog.get_logger()
        (log.debug if quiet else log.info)(
            "request",
            method=scope["method"],
            path=_path(scope),  # without the query, which may name what is nobody's business
            status=status,
            problem=problem,
            milliseconds=round(1000 * seconds, 1),
            bytes=given.size,
            client=(scope.get("client") or ("unknown",))[0],
            key=getattr(state.get("principal"), "owner", None) or None,
            job=_job(scope),
        )


def _path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode(errors="replace")
    return raw.partition(b"?")[0][:500].decode("ascii", errors="replace")


def _job(scope: Scope) -> str | None:
    job = scope.get("path_params", {}).get("job_id")
    return None if job is None else str(job)[:100]
