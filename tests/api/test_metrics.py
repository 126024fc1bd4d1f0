"""Metrics for Prometheus."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import Engine
from structlog.testing import capture_logs

from api.jobs.queue import record_heartbeat
from api.jobs.store import SubmitLimits, submit
from api.metrics import Metrics, RequestLog
from api.storage.database import connect
from api.storage.keys import create_key
from api.storage.tables import JOBS
from tests.service import ServiceClient, client_of

Values = dict[tuple[str, ...], float]


def values(text: bytes) -> Values:
    """Each sample under its name and the values of its labels."""
    return {
        (sample.name, *(sample.labels[name] for name in sorted(sample.labels))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_jobs_are_counted_by_state(engine: Engine) -> None:
    for number in range(3):
        submit(engine, "", {"number": number}, None, SubmitLimits(10, 3))

    found = values(Metrics().render(engine, 60.0))

    assert found["difficulty_jobs", "queued"] == 3
    assert found["difficulty_jobs", "running"] == 0
    assert found["difficulty_jobs", "failed"] == 0
    assert found["difficulty_oldest_queued_job_seconds",] >= 0
    assert found["difficulty_database_up",] == 1


def test_only_workers_with_a_recent_heartbeat_are_alive(engine: Engine) -> None:
    record_heartbeat(engine, "ant", "cuda:0", "job", 120)

    found = values(Metrics().render(engine, 60.0))
    later = values(Metrics().render(engine, -60.0))

    assert found["difficulty_workers",] == 1
    assert found["difficulty_worker_images_total", "cuda:0", "ant"] == 120
    assert later["difficulty_workers",] == 0


def test_images_and_their_speed_come_from_the_jobs(engine: Engine) -> None:
    states = (("running", 100, 50.0), ("running", 30, 25.5), ("succeeded", 1000, 400.0))
    for state, done, rate in states:
        job, _ = submit(engine, "", {"state": state}, None, SubmitLimits(10, 3))
        with engine.begin() as connection:
            row = {"state": state, "done": done, "bad": 1, "rate": rate}
            connection.execute(JOBS.update().where(JOBS.c.id == job.id).values(row))

    found = values(Metrics().render(engine, 60.0))

    assert found["difficulty_job_images",] == 1130
    assert found["difficulty_job_bad_images",] == 3
    assert found["difficulty_images_per_second",] == 75.5


def test_requests_are_counted_while_the_database_is_down(tmp_path: Path) -> None:
    engine = connect(f"sqlite:///{tmp_path / 'empty.sqlite'}")
    metrics = Metrics()
    metrics.record({"type": "http", "method": "GET"}, 200, 0.01, None)

    found = values(metrics.render(engine, 60.0))

    engine.dispose()
    assert found["difficulty_database_up",] == 0
    assert found["difficulty_http_requests_total", "GET", "unknown", "200"] == 1
    assert not any(name[0] == "difficulty_jobs" for name in found)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    with client_of(tmp_path) as client:
        yield client


def test_requests_are_counted_by_route_and_not_by_path(client: ServiceClient) -> None:
    for number in range(3):
        client.post(f"/v1/gaussians/job{number}/score", json={})
    client.get("/v1/nothing/1")
    client.get("/v1/nothing/2")
    client.request("BREW", "/v1/nothing")

    found = values(client.get("/metrics").content)

    route = "/v1/gaussians/{job_id}/score"
    assert found["difficulty_http_requests_total", "POST", route, "404"] == 3
    assert found["difficulty_http_requests_total", "GET", "unknown", "404"] == 2
    assert found["difficulty_http_requests_total", "other", "unknown", "404"] == 1
    assert found["difficulty_http_problems_total", "not-found"] == 6
    assert found["difficulty_http_request_seconds_count", "POST", route] == 3


def test_once_there_are_keys_the_metrics_of_all_need_one_that_may_read_all(
    client: ServiceClient,
) -> None:
    engine = client.engine
    secrets = [create_key(engine, scope, [scope])[1] for scope in ("write", "read-all")]

    without = client.get("/metrics")
    of_one, with_key = (
        client.get("/metrics", headers={"Authorization": f"Bearer {secret}"}) for secret in secrets
    )

    assert without.status_code == 401
    assert (of_one.status_code, of_one.json()["type"]) == (403, "/problems/forbidden")
    assert "this needs read-all" in of_one.json()["detail"]
    assert with_key.status_code == 200
    assert with_key.headers["content-type"].startswith("text/plain; version=0.0.4")


def test_a_request_that_the_stopping_server_gives_up_is_answered_without_a_traceback() -> None:
    sent: list[dict[str, Any]] = []

    async def never_answers(*_: object) -> None:
        await asyncio.Event().wait()

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:  # noqa: ANN401 - as ASGI has it
        sent.append(message)

    async def main() -> None:
        scope = {"type": "http", "method": "GET", "path": "/v1/jobs", "headers": []}
        log = RequestLog(never_answers, Metrics())
        request = asyncio.create_task(log(scope, receive, send))
        await asyncio.sleep(0)
        request.cancel()
        await request

    with capture_logs() as events:
        asyncio.run(main())

    assert [message.get("status") for message in sent] == [503, None]
    assert b"the service is being stopped" in sent[1]["body"]
    assert [(each["event"], each.get("status")) for each in events] == [("request", 503)]
