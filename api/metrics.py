"""Every request is logged and counted; metrics of requests, jobs and workers for Prometheus."""

import asyncio
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import structlog
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from sqlalchemy import Engine, func, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.http.changes import record_change
from api.http.problem_responses import answer, from_unexpected
from api.http.problems import stopping
from api.jobs.queue import live_workers
from api.jobs.store import counts, oldest_queued_age
from api.storage.tables import JOBS

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Metrics:
    """The counters of one application.

    Labels take few values whatever clients send: a path is counted as its route, and a path without
    a route as `unknown`.
    """

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        self._requests = Counter(
            "difficulty_http_requests",
            "Requests answered",
            ("route", "method", "status"),
            registry=self._registry,
        )
        self._seconds = Histogram(
            "difficulty_http_request_seconds",
            "Time until the end of the answer",
            ("route", "method"),
            buckets=SECONDS,
            registry=self._registry,
        )
        self._problems = Counter(
            "difficulty_http_problems",
            "Requests answered with a problem, by its type",
            ("type",),
            registry=self._registry,
        )

    def record(self, scope: Scope, status: int, seconds: float, problem: str | None) -> None:
        """Counts a request that was answered."""
        route = getattr(scope.get("route"), "path", "unknown")
        method = scope["method"] if scope["method"] in METHODS else "other"
        self._requests.labels(route, method, str(status)).inc()
        self._seconds.labels(route, method).observe(seconds)
        if problem is not None:
            self._problems.labels(problem).inc()

    def render(self, engine: Engine, within: float) -> bytes:
        """All metrics in Prometheus' text format; without those of a database that does not answer.

        A worker counts as alive within so many seconds of its last heartbeat.
        """
        registry = CollectorRegistry()
        registry.register(_DatabaseMetrics(engine, within))
        return generate_latest(self._registry) + generate_latest(registry)


class _DatabaseMetrics:
    """Metrics of jobs and workers, read from the database when they are collected."""

    def __init__(self, engine: Engine, within: float) -> None:
        self._engine = engine
        self._within = within

    def collect(self) -> Iterator[Metric]:
        """The metrics, and whether the database answered."""
        try:
            metrics = [*self._jobs(), *self._workers()]
        except SQLAlchemyError as error:
            structlog.get_logger().warning("metrics-incomplete", reason=type(error).__name__)
            metrics = []
        up = float(bool(metrics))
        yield GaugeMetricFamily("difficulty_database_up", "Whether the database answers", up)
        yield from metrics

    def _jobs(self) -> Iterator[Metric]:
        jobs = GaugeMetricFamily("difficulty_jobs", "Jobs in each state", labels=("state",))
        for state, number in counts(self._engine).items():
            jobs.add_metric((state,), number)
        yield jobs
        running = JOBS.c.state == "running"
        query = select(
            func.coalesce(func.sum(JOBS.c.done), 0),
            func.coalesce(func.sum(JOBS.c.bad), 0),
            func.coalesce(func.sum(JOBS.c.rate).filter(running), 0.0),
        )
        with self._engine.connect() as connection:
            done, bad, rate = connection.execute(query).one()
        age = oldest_queued_age(self._engine) or 0.0
        for name, meaning, value in (
            ("oldest_queued_job_seconds", "Time that the oldest queued job has waited", age),
            ("job_images", "Images processed by all jobs in the database", done),
            ("job_bad_images", "Unreadable ones among them", bad),
            ("images_per_second", "Speed of all running jobs together", rate),
        ):
            yield GaugeMetricFamily(f"difficulty_{name}", meaning, float(value))

    def _workers(self) -> Iterator[Metric]:
        workers = live_workers(self._engine, self._within)
        yield GaugeMetricFamily("difficulty_workers", "Workers that are alive", len(workers))
        images = CounterMetricFamily(
            "difficulty_worker_images",
            "Images a worker has processed since it started",
            labels=("worker", "device"),
        )
        for worker in workers:
            images.add_metric((worker.id, worker.device), worker.images)
        yield images


QUIET_PATHS = ("/healthz", "/readyz", "/metrics")  # requested every few seconds
ABORTED = 499  # the client went away; no answer has this status


@dataclass
class _AnswerCounter:
    """Counts what is sent as the answer."""

    send: Send
    status: int = 0
    size: int = 0
    location: str | None = None  # that the answer names, as of a new job
    began: float = field(default_factory=time.perf_counter)

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.location = Headers(raw=message["headers"]).get("location")
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
        except asyncio.CancelledError:
            # The server has waited for its last answers long enough.
            if sent.status:
                raise
            await answer(stopping(), scope)(scope, receive, sent)
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
        facts = {
            "method": scope["method"],
            "path": _path(scope),  # without the query, which may contain private names
            "status": status,
            "problem": problem,
            "client": (scope.get("client") or ("unknown",))[0],
            "key": getattr(state.get("principal"), "owner", None) or None,
            "job": _job(scope),
        }
        (log.debug if quiet else log.info)(
            "request", **facts, milliseconds=round(1000 * seconds, 1), bytes=sent.size
        )
        record_change(scope, facts | {"location": (sent.location or "").partition("?")[0] or None})


def _path(scope: Scope) -> str:
    raw: bytes = scope.get("raw_path") or scope["path"].encode(errors="replace")
    return raw.partition(b"?")[0][:500].decode("ascii", errors="replace")


def _job(scope: Scope) -> str | None:
    job = scope.get("path_params", {}).get("job_id")
    return None if job is None else str(job)[:100]
