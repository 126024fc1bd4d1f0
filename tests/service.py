"""The running service in a test's own process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from api.app import create_app
from api.http.needed_services import attach_services
from api.services import Services
from api.settings import Settings


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


def ask(client: TestClient, job: str, **body: object) -> dict[str, object]:
    """What was asked of a job, once it is there or has failed."""
    answer = client.post(f"/v1/jobs/{job}/comparisons", json=body)
    assert answer.status_code in (200, 202), answer.text
    found = answer.json()
    while found["state"] == "running":
        time.sleep(0.3)
        found = client.get(found["links"]["self"]).raise_for_status().json()
    return dict(found)
