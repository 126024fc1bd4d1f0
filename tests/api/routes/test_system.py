"""Health, readiness and the backbones of the service."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from api.jobs.queue import record_heartbeat
from api.storage.tables import METADATA
from difficulty_service.backbones import BACKBONES, list_backbones
from tests.factories import write_hub_file
from tests.service import ServiceClient, client_of

Start = Callable[..., ServiceClient]


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
    record_heartbeat(client.engine, "ant", "cpu", None, 0)

    response = client.get("/readyz")

    assert response.status_code == 200
    assert response.json()["missing"] == []
    assert {part["ready"] for part in response.json()["parts"].values()} == {True}


def test_a_folder_of_artifacts_that_is_gone_is_named(start: Start, tmp_path: Path) -> None:
    client = start()
    shutil.rmtree(tmp_path / "artifacts")

    assert "artifacts" in client.get("/readyz").json()["missing"]


@pytest.mark.slow
def test_a_database_without_its_tables_is_not_ready_and_reveals_nothing(
    start: Start, tmp_path: Path
) -> None:
    client = start()
    with client.engine.begin() as connection:
        METADATA.drop_all(connection)
        connection.exec_driver_sql("DELETE FROM alembic_version")

    response = client.get("/readyz")

    assert response.status_code == 503
    assert response.json()["missing"] == ["database", "workers"]
    assert str(tmp_path) not in response.text
    assert "revision" not in response.text


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of the hub, empty, on a machine without a network."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    return tmp_path / "hub"


def defaults_of(client: ServiceClient) -> list[str]:
    backbones = client.get("/v1/backbones").json()["backbones"]
    return [each["name"] for each in backbones if each["default"]]


def submitted(client: ServiceClient, folder: Path, **options: object) -> str:
    """The backbone of a new job that names none."""
    (folder / "photos" / "cat").mkdir(parents=True, exist_ok=True)
    body = {"dataset": {"root": "all", "path": "photos"}, **options}
    answer = client.post("/v1/jobs", json=body)
    return str(answer.raise_for_status().json()["request"]["backbone"])


def test_the_backbones_are_those_of_the_command_line(start: Start, hub: Path) -> None:
    write_hub_file(hub, str(BACKBONES["clip-vit-b16"].repository), "open_clip_model.safetensors")
    with capture_logs() as logs:
        client = start(default_backbone=None)

    assert [each["name"] for each in client.get("/v1/backbones").json()["backbones"]] == [
        each.name for each in list_backbones() if ":" not in each.name
    ]
    assert defaults_of(client) == ["clip-vit-b16", "builtin-text"]
    assert not [entry for entry in logs if entry["event"] == "default-backbone"]


def test_without_network_and_weights_the_default_is_the_network_of_the_package_for_photographs(
    start: Start, hub: Path, tmp_path: Path
) -> None:
    with capture_logs() as logs:
        client = start(default_backbone=None, roots={"all": str(tmp_path)})
    first = submitted(client, tmp_path)
    by_words = submitted(client, tmp_path, classes="cat,dog")
    form = client.get("/").text
    write_hub_file(hub, str(BACKBONES["clip-vit-b16"].repository), "open_clip_model.safetensors")
    later = start(default_backbone=None, roots={"all": str(tmp_path)})
    stored = [each["request"]["backbone"] for each in later.get("/v1/jobs").json()["jobs"]]

    assert defaults_of(client) == ["builtin-photos", "builtin-text"]
    assert "Recommended (EfficientNet-Lite2 trained on ImageNet, " in form
    (told,) = (entry for entry in logs if entry["event"] == "default-backbone")
    assert told["backbone"] == first == "builtin-photos"
    assert "the weights of clip-vit-b16 are missing" in told["reason"]
    assert "DIFFICULTY_DEFAULT_BACKBONE" in told["remedy"]
    assert defaults_of(later) == ["clip-vit-b16", "builtin-text"]
    assert by_words == "clip-vit-b16"  # no network of the package knows words
    assert stored == [by_words, first]


@pytest.mark.usefixtures("hub")
@pytest.mark.parametrize(
    "stated", [{"default_backbone": "clip-vit-b16"}, {"backbones": ("clip-vit-b16", "builtin")}]
)
def test_without_network_what_an_operator_states_is_the_default_all_the_same(
    start: Start, tmp_path: Path, stated: dict[str, object]
) -> None:
    client = start(**{"default_backbone": None} | stated, roots={"all": str(tmp_path)})

    assert submitted(client, tmp_path) == "clip-vit-b16"


def test_only_backbones_that_jobs_may_ask_for_are_listed(start: Start) -> None:
    client = start(backbones=("builtin", "timm:resnet18"), default_backbone="builtin")

    backbones = client.get("/v1/backbones").json()["backbones"]

    assert [(each["name"], each["default"]) for each in backbones] == [
        ("builtin", True),
        ("timm:resnet18", False),
    ]
    assert backbones[0]["weights"] == "in the package"
