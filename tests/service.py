"""The running service: in a test's own process, and where another process serves."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx2
from fastapi.testclient import TestClient
from httpx2 import Response

from api.app import create_app
from api.http.needed_services import attach_services
from api.jobs.queue import claim, succeed
from api.jobs.store import Job
from api.services import Services
from api.settings import Settings
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job


@contextmanager
def client_of(
    data_dir: Path,
    *,
    follow_redirects: bool = True,
    **settings: Any,  # noqa: ANN401 - whatever settings are
) -> Iterator[TestClient]:
    """A client on this machine of a running application, by default with the built-in backbone."""
    usual = {"data_dir": data_dir, "device": "cpu", "default_backbone": "builtin"}
    app = create_app(Settings(**usual | settings))
    with TestClient(app, base_url="http://localhost", follow_redirects=follow_redirects) as client:
        yield client


def services_in(client: TestClient) -> Services:
    """What the requests of a client share."""
    services: Services = client.app.state.services  # type: ignore[attr-defined]
    return services


def share(client: TestClient, services: Services) -> None:
    """Has the later requests of a client share other services."""
    attach_services(client.app, services)  # type: ignore[arg-type]


def run_next_job(client: TestClient) -> Job:
    """Runs the next job of a service to its end, as a worker would."""
    services = services_in(client)
    job = claim(services.engine, "worker", "cpu", 600.0)
    assert job is not None
    result = run_job(job, services.settings, services.engine, services.artifacts, Observer())
    assert succeed(services.engine, job, result)
    return job


def assert_problem(response: Response, status: int, kind: str, field: str | None = None) -> None:
    """Asserts the status, the type and the field of a problem, which has a remedy."""
    assert response.status_code == status, response.text
    problem = response.json()
    assert problem["type"] == f"/problems/{kind}"
    assert problem["remedy"]
    if field is not None:
        assert problem["field"] == field


def ask(client: TestClient, job: str, **body: object) -> dict[str, object]:
    """What was asked of a job, once it is there or has failed."""
    answer = client.post(f"/v1/jobs/{job}/comparisons", json=body)
    assert answer.status_code in (200, 202), answer.text
    found = answer.json()
    while found["state"] == "running":
        time.sleep(0.3)
        found = client.get(found["links"]["self"]).raise_for_status().json()
    return dict(found)


def listening_url(server: ForkServerProcess, log: Path) -> str:
    """URL of `difficulty serve` in a process of its own by its log, once it answers there."""
    while server.is_alive():
        for line in log.read_text().splitlines() if log.exists() else ():
            event = json.loads(line) if line.startswith("{") else {}
            if event.get("event") == "listening":
                with httpx2.Client(
                    transport=httpx2.HTTPTransport(retries=50), timeout=120
                ) as client:
                    client.get(event["url"] + "/healthz").raise_for_status()
                return str(event["url"])
        server.join(0.05)
    raise AssertionError(f"the server ended: {log.read_text()}")
