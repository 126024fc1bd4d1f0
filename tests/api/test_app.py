"""The whole application: every error is a problem, and the OpenAPI description says so."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from fastapi import FastAPI
from pydantic import BaseModel
from sqlalchemy.exc import DataError, OperationalError
from starlette.exceptions import HTTPException

from api.app import create_app
from api.http.api_keys import OPEN_PATHS
from api.http.problems import CONTENT_TYPE, TITLES, Problem
from api.settings import Settings
from api.storage.database import DatabaseUnusable, require_current
from difficulty_service.base.errors import (
    BackboneError,
    ConfigError,
    DatasetError,
    DifficultyError,
    ImageError,
    Setting,
    StatisticsError,
)
from tests.service import ServiceClient, client_of

FAILURES: dict[str, Exception] = {
    "problem": Problem(409, "conflict", "it runs", "wait", field="id", headers={"X-Why": "runs"}),
    "dataset": DatasetError("no images in 'photos'"),
    "backbone": BackboneError("there is no backbone 'resnet'", "see GET /v1/backbones"),
    "image": ImageError("too large", "raise ", Setting("max_pixels"), parameter="max_pixels"),
    "schema": DatabaseUnusable("the database is at revision 1"),
    "down": OperationalError("SELECT secret", {}, Exception("no route to db.internal")),
    "value": DataError("INSERT", {}, Exception("NUL")),
    "damage": StatisticsError("/srv/data/gaussians.safetensors is damaged", "delete /srv/data/x"),
    "teapot": HTTPException(418, "short and stout"),
    "upstream": HTTPException(502, "db.internal"),
    "bug": ZeroDivisionError("division of secret"),
}
EXPECTED = {
    "problem": (409, "conflict"),
    "dataset": (422, "unreadable"),
    "backbone": (422, "unreadable"),
    "image": (422, "unreadable"),
    "schema": (503, "unavailable"),
    "down": (503, "unavailable"),
    "value": (422, "invalid-request"),
    "damage": (422, "unreadable"),
    "teapot": (400, "bad-request"),
    "upstream": (500, "internal"),
    "bug": (500, "internal"),
}


class Body(BaseModel):
    """Body of a route of the test."""

    number: int
    name: str = ""


def add_failing_routes(app: FastAPI) -> None:
    @app.get("/fail/{name}")
    def fail(name: str) -> None:
        raise FAILURES[name]

    @app.post("/numbers")
    def take(body: Body) -> int:
        return body.number


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceClient]:
    with client_of(tmp_path_factory.mktemp("data")) as client:
        add_failing_routes(client.app)  # type: ignore[arg-type]
        yield client


@pytest.fixture(scope="module")
def app(client: ServiceClient) -> FastAPI:
    return client.app  # type: ignore[return-value]


@pytest.mark.parametrize("name", FAILURES)
def test_an_error_of_any_kind_is_answered_as_a_problem(client: ServiceClient, name: str) -> None:
    response = client.get(f"/fail/{name}")

    status, kind = EXPECTED[name]
    body = response.json()
    assert response.headers["content-type"] == CONTENT_TYPE
    assert (response.status_code, body["status"]) == (status, status)
    assert (body["type"], body["title"]) == (f"/problems/{kind}", TITLES[kind])
    assert body["detail"]
    assert body["remedy"]
    assert "secret" not in response.text
    assert "db.internal" not in response.text


def test_a_problem_keeps_its_field_and_headers(client: ServiceClient) -> None:
    response = client.get("/fail/problem")

    assert response.json()["field"] == "id"
    assert response.headers["x-why"] == "runs"


def test_a_database_that_is_down_is_answered_with_a_time_to_retry(client: ServiceClient) -> None:
    response = client.get("/fail/down")

    assert int(response.headers["retry-after"]) > 0


def test_an_unknown_address_is_a_problem(client: ServiceClient) -> None:
    response = client.get("/v1/nothing")

    assert response.status_code == 404
    assert response.json()["type"] == "/problems/not-found"


def test_a_wrong_method_is_answered_with_the_allowed_ones(client: ServiceClient) -> None:
    response = client.delete("/healthz")

    assert response.status_code == 405
    assert response.json()["type"] == "/problems/method-not-allowed"
    assert response.headers["allow"] == "GET"


def test_a_wrong_field_is_named(client: ServiceClient) -> None:
    response = client.post("/numbers", json={"number": "many", "name": 7})

    body = response.json()
    assert response.status_code == 422
    assert body["field"] == "number"
    assert "number: " in body["detail"]
    assert "name: " in body["detail"]
    assert "many" not in response.text


@pytest.mark.parametrize("content", [b"{", b"\xff\xfe", b'{"number": 1}]', b"[" * 100_000])
def test_a_body_that_is_no_json_is_a_bad_request(client: ServiceClient, content: bytes) -> None:
    headers = {"content-type": "application/json"}

    response = client.post("/numbers", content=content, headers=headers)

    assert response.status_code in (400, 422)
    assert response.headers["content-type"] == CONTENT_TYPE


def test_the_request_id_sent_comes_back(client: ServiceClient) -> None:
    sent = uuid4().hex

    response = client.get("/healthz", headers={"X-Request-ID": sent})

    assert response.headers["x-request-id"] == sent


def test_a_request_id_that_could_forge_a_log_is_replaced(client: ServiceClient) -> None:
    response = client.get("/healthz", headers={"X-Request-ID": "x event=deleted"})

    assert "deleted" not in response.headers["x-request-id"]


def test_starting_makes_the_tables(client: ServiceClient) -> None:
    assert client.get("/healthz").status_code == 200

    require_current(client.engine)


def test_a_rate_limit_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="often"):
        create_app(Settings(data_dir=tmp_path, rate_limit="often"))


def test_an_error_of_the_library_brings_its_message(client: ServiceClient) -> None:
    response = client.get("/fail/dataset")

    assert isinstance(FAILURES["dataset"], DifficultyError)
    assert response.json()["detail"] == "no images in 'photos'"


def test_an_error_of_the_library_brings_its_remedy(client: ServiceClient) -> None:
    response = client.get("/fail/backbone")

    assert response.json()["detail"] == "there is no backbone 'resnet'"
    assert response.json()["remedy"] == "see GET /v1/backbones"


def test_an_error_of_the_library_names_no_folder_of_the_server(client: ServiceClient) -> None:
    response = client.get("/fail/damage").json()

    assert response["detail"] == "gaussians.safetensors is damaged"
    assert response["remedy"] == "delete x"


def test_a_remedy_that_names_no_field_of_the_request_is_left_out(client: ServiceClient) -> None:
    response = client.get("/fail/image")

    assert response.json()["detail"] == "too large"
    assert "max_pixels" not in response.text


@pytest.fixture(scope="module")
def operations(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], dict[str, Any]]:
    app = create_app(Settings(data_dir=tmp_path_factory.mktemp("described")))
    paths = app.openapi()["paths"]
    return {
        (method, path): operation
        for path, methods in paths.items()
        for method, operation in methods.items()
    }


def test_every_error_is_described_as_a_problem_or_has_a_form_of_its_own(
    operations: dict[tuple[str, str], dict[str, Any]],
) -> None:
    for place, operation in operations.items():
        for status, response in operation["responses"].items():
            if status[0] in "45":
                assert response["description"], place
                forms = response["content"].values()
                assert all("$ref" in form["schema"] for form in forms), (place, status)
                assert "HTTPValidationError" not in str(forms), (place, status)


def test_every_address_but_the_health_checks_declares_that_it_needs_a_key(
    operations: dict[tuple[str, str], dict[str, Any]],
) -> None:
    open_places = {path for _, path in operations if path in OPEN_PATHS}

    unguarded = {path for (_, path), operation in operations.items() if "security" not in operation}

    assert unguarded == open_places == set(OPEN_PATHS)


def test_every_address_behind_the_keys_declares_what_the_gate_answers(
    operations: dict[tuple[str, str], dict[str, Any]],
) -> None:
    for (_, path), operation in operations.items():
        if path not in OPEN_PATHS:
            assert {"401", "403", "429", "503"} <= operation["responses"].keys(), path
            if "requestBody" in operation:
                assert {"400", "413", "422"} <= operation["responses"].keys(), path


def test_every_address_declares_that_a_request_may_have_too_large_a_head(
    operations: dict[tuple[str, str], dict[str, Any]],
) -> None:
    assert [place for place, each in operations.items() if "431" not in each["responses"]] == []


def test_the_description_names_only_what_it_defines(app: FastAPI) -> None:
    schema = app.openapi()
    names = schema["components"]["schemas"]

    referred = {part.split("'")[0] for part in str(schema).split("#/components/schemas/")[1:]}

    assert referred <= names.keys()
    assert "Problem" in referred


@pytest.mark.parametrize(
    ("address", "allowed"),
    [("/v1/jobs", "GET, POST"), ("/v1/jobs/x", "DELETE, GET")],
)
def test_a_wrong_method_is_answered_with_all_that_are_right(
    tmp_path: Path, address: str, allowed: str
) -> None:
    with client_of(tmp_path) as client:
        answer = client.patch(address)

    assert answer.status_code == 405
    assert answer.headers["Allow"] == allowed


def test_a_device_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    with (
        pytest.raises(BackboneError, match="device 'cuda:99' cannot be used here"),
        client_of(tmp_path, device="cuda:99"),
    ):
        pass
