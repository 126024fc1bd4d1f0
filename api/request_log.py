"""Logs and counts every request, and answers those that fail unexpectedly."""

import time
from dataclasses import dataclass, field
from typing import Any

import structlog
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.problem_responses import answer, from_unexpected
from api.metrics import Metrics

QUIET_PATHS = ("/healthz", "/readyz", "/metrics")  # requested every few seconds
ABORTED = 499  # the client went away; no answer has this status


@dataclass
class _AnswerCounter:
    """Counts what is sent as the answer."""

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
class RequestLog:
    """Middleware that logs and counts requests, and answers 500 where nothing else answered."""

    app: ASGIApp
    metrics: Metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes a request on and records its answer."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        sent = _AnswerCounter(send)
        try:
            await self._handle(scope, receive, sent)
        finally:
            self._record(scope, sent)

    async def _handle(self, scope: Scope, receive: Receive, sent: _AnswerCounter) -> None:
        try:
            await self.app(scope, receive, sent)
        except ClientDisconnect:
            sent.status = ABORTED
        except Exception as error:
            structlog.get_logger().error("request-failed", exc_info=error)
            if sent.status:
                # The answer is incomplete; the server closes the connection to signal it.
                raise
            await answer(from_unexpected(), scope)(scope, receive, sent)

    def _record(self, scope: Scope, sent: _AnswerCounter) -> None:
        seconds = time.perf_counter() - sent.began
        state: dict[str, Any] = scope.get("state", {})
        problem = state.get("problem")
        # A client that disconnects during an answer has already received its status.
        status = sent.status or ABORTED
        self.metrics.record(scope, status, seconds, problem)
        quiet = scope["path"] in QUIET_PATHS and status < 400  # noqa: PLR2004 - no error
        log = structlog.get_logger()
        (log.debug if quiet else log.info)(
            "request",
            method=scope["method"],
            path=_path(scope),  # without the query, which may contain private names
            status=status,
            problem=problem,
            milliseconds=round(1000 * seconds, 1),
            bytes=sent.size,
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
