"""The running service: in a test's own process, and where another process serves."""

import json
import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

import httpx2
import structlog
from fastapi.testclient import TestClient
from httpx2 import Response
from sqlalchemy import Engine

from api.app import create_app
from api.http.needed_services import attach_services
from api.jobs.queue import claim, succeed
from api.jobs.store import Job
from api.services import Services
from api.settings import Settings
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job


class ServiceClient(TestClient):
    """A client that knows the application which it asks."""

    @property
    def services(self) -> Services:
        """What the requests share, once the application runs."""
        services: Services = self.app.state.services  # type: ignore[attr-defined]
        return services

    @property
    def engine(self) -> Engine:
        """The database of the application."""
        return self.services.engine

    @property
    def settings(self) -> Settings:
        """The settings of the application."""
        return self.services.settings


@contextmanager
def client_of(
    data_dir: Path,
    *,
    follow_redirects: bool = True,
    **settings: Any,  # noqa: ANN401 - whatever settings are
) -> Iterator[ServiceClient]:
    """A client on this machine of a running application, by default with the built-in backbone."""
    usual = {"data_dir": data_dir, "device": "cpu", "default_backbone": "builtin"}
    app = create_app(Settings(**usual | settings))
    with ServiceClient(
        app, base_url="http://localhost", follow_redirects=follow_redirects
    ) as client:
        yield client


def share(client: ServiceClient, services: Services) -> None:
    """Has the later requests of a client share other services."""
    attach_services(client.app, services)  # type: ignore[arg-type]


def run_next_job(client: ServiceClient) -> Job:
    """Runs the next job of a service to its end, as a worker would."""
    services = client.services
    job = claim(services.engine, "worker", "cpu", 600.0)
    assert job is not None
    result = run_job(job, services.settings, services.engine, services.artifacts, Observer())
    assert succeed(services.engine, job, result)
    return job


def finished_job(client: ServiceClient, **fields: object) -> Job:
    """A job with these fields of its request, which is submitted and run to its end."""
    body = {"dataset": {"root": "photos"}, "shrinkage": "ledoit-wolf"} | fields
    client.post("/v1/jobs", json=body).raise_for_status()
    return run_next_job(client)


def assert_problem(response: Response, status: int, kind: str, field: str | None = None) -> None:
    """Asserts the status, the type and the field of a problem, which has a remedy."""
    assert response.status_code == status, response.text
    problem = response.json()
    assert problem["type"] == f"/problems/{kind}"
    assert problem["remedy"]
    if field is not None:
        assert problem["field"] == field


@contextmanager
def logging_restored() -> Iterator[None]:
    """Has the configuration of all logs be what it was, after the context."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def announce(client: TestClient, form: str = "zip", size: int | None = None) -> str:
    """Announces an upload; returns its address."""
    answer = client.post("/v1/uploads", json={"format": form, "size": size})
    assert answer.status_code == 201, answer.text
    return str(answer.headers["Location"])


def ask(client: ServiceClient, job: str, **body: object) -> dict[str, object]:
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
