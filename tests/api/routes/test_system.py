"""Health, readiness and the backbones of the service."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from api.jobs.queue import record_heartbeat
from api.settings import Settings
from api.storage.tables import METADATA
from difficulty_service.backbones import list_backbones
from tests.factories import client_of

Start = Callable[..., TestClient]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts the application with some settings changed."""
    with ExitStack() as running:
        yield lambda **changes: running.enter_context(client_of(tmp_path, **changes))


def test_a_running_server_is_healthy(start: Start) -> None:
    response = start().get("/healthz")

    assert (response.status_code, response.json()) == (200, {"status": "ok"})


def test_without_a_worker_the_service_is_not_ready(start: Start) -> None:
    response = start().get("/readyz")

    body = response.json()
    assert response.status_code == 503
    assert (body["ready"], body["missing"]) == (False, ["workers"])
    assert "difficulty worker" in body["parts"]["workers"]["detail"]


def test_with_a_live_worker_the_service_is_ready(start: Start) -> None:
    client = start()
    record_heartbeat(client.app.state.engine, "ant", "cpu", None, 0)  # type: ignore[attr-defined]

    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json()["missing"] == []
    assert {part["ready"] for part in response.json()["parts"].values()} == {True}


def test_a_folder_of_artifacts_that_is_gone_is_named(start: Start, tmp_path: Path) -> None:
    client = start()
    (tmp_path / "artifacts").rmdir()

    assert "artifacts" in client.get("/readyz").json()["missing"]


def test_a_database_without_its_tables_is_not_ready_and_reveals_nothing(
    start: Start, tmp_path: Path
) -> None:
    client = start()
    with client.app.state.engine.begin() as connection:  # type: ignore[attr-defined]
        METADATA.drop_all(connection)
        connection.exec_driver_sql("DELETE FROM alembic_version")

    response = client.get("/readyz")

    assert response.status_code == 503
    assert response.json()["missing"] == ["database", "workers"]
    assert str(tmp_path) not in response.text
    assert "revision" not in response.text


def test_the_backbones_are_those_of_the_command_line(start: Start) -> None:
    default = Settings.model_fields["default_backbone"].default
    backbones = start(default_backbone=default).get("/v1/backbones").json()["backbones"]

    assert [each["name"] for each in backbones] == [
        each.name for each in list_backbones() if each.name != "transformers:NAME"
    ]
    defaults = [each["name"] for each in backbones if each["default"]]
    assert defaults == ["clip-vit-b16", "builtin-text"]


def test_only_backbones_that_jobs_may_ask_for_are_listed(start: Start) -> None:
    client = start(backbones=("builtin", "timm:resnet18"), default_backbone="builtin")

    backbones = client.get("/v1/backbones").json()["backbones"]

    assert [(each["name"], each["default"]) for each in backbones] == [
        ("builtin", True),
        ("timm:resnet18", False),
    ]
    assert backbones[0]["weights"] == "in the package"
