"""Requests are authenticated by key, and a key's scopes decide what they may do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import Depends, FastAPI
from sqlalchemy import event

from api.http.api_keys import ReadKey, WriteKey, require_scope
from api.http.principals import Principal
from api.http.problem_responses import add_handlers
from api.storage.keys import create_key, revoke_key
from tests.service import ServiceClient, client_of


def add_routes(app: FastAPI) -> None:
    @app.get("/v1/mine")
    async def read(key: ReadKey) -> str:
        return key.owner

    @app.post("/v1/mine")
    async def write(key: WriteKey) -> str:
        return key.owner

    @app.delete("/v1/mine")
    async def administer(key: Annotated[Principal, Depends(require_scope("admin"))]) -> list[str]:
        return sorted(key.scopes)


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    with client_of(tmp_path) as client:
        add_routes(client.app)  # type: ignore[arg-type]
        yield client


def bearer(client: ServiceClient, scopes: str) -> dict[str, str]:
    """Creates a key with scopes; returns the header to send."""
    _, secret = create_key(client.engine, "test", scopes.split(","))
    return {"Authorization": f"Bearer {secret}"}


def test_without_keys_requests_have_all_scopes_and_an_empty_owner(client: ServiceClient) -> None:
    assert client.get("/v1/mine").json() == ""
    assert client.delete("/v1/mine").json() == ["admin", "read", "read-all", "write"]


def test_the_first_key_closes_the_service_to_those_without(client: ServiceClient) -> None:
    bearer(client, "read")

    response = client.get("/v1/mine")

    assert response.status_code == 401
    assert response.headers["www-authenticate"] == "Bearer"
    assert response.json()["type"] == "/problems/unauthorised"


def test_revoking_the_last_key_does_not_open_the_service(client: ServiceClient) -> None:
    key, secret = create_key(client.engine, "only", ["admin"])
    revoke_key(client.engine, key.id)

    with_key = client.get("/v1/mine", headers={"X-API-Key": secret})
    without = client.get("/v1/mine")

    assert (with_key.status_code, without.status_code) == (401, 401)


@pytest.mark.parametrize(
    "form", ["Authorization: Bearer {}", "authorization: bearer {}", "X-API-Key: {}"]
)
def test_a_key_is_accepted_in_either_header(client: ServiceClient, form: str) -> None:
    key, secret = create_key(client.engine, "test", ["read"])
    name, _, value = form.format(secret).partition(": ")

    response = client.get("/v1/mine", headers={name: value})

    assert response.json() == key.id


@pytest.mark.parametrize("path", ["/healthz", "/readyz"])
def test_health_checks_need_no_key(client: ServiceClient, path: str) -> None:
    bearer(client, "read")

    assert client.get(path).status_code != 401


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/openapi.json", "/docs", "/metrics", "/healthz/x"]
)
def test_everything_else_needs_one_whether_it_is_there_or_not(
    client: ServiceClient, path: str
) -> None:
    bearer(client, "read")

    assert client.get(path).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Basic dXNlcjpwYXNz"},
        {"Authorization": "Bearer"},
        {"Authorization": "Bearer " + "x" * 5000},
        {"Authorization": "Bearer difficulty_wrong"},
        {"X-API-Key": ""},
        {"X-API-Key": b"\xff\xfe\x80"},
        {"X-API-Key": "' OR 1=1 --"},
    ],
)
def test_an_invalid_key_is_refused(client: ServiceClient, headers: dict[str, str]) -> None:
    bearer(client, "read")

    response = client.get("/v1/mine", headers=headers)

    assert response.status_code == 401
    assert response.json()["type"] == "/problems/unauthorised"


@pytest.mark.parametrize(
    ("scopes", "statuses"),
    [("read", (200, 403, 403)), ("write", (200, 200, 403)), ("admin", (200, 200, 200))],
)
def test_a_scope_allows_itself_and_those_below(
    client: ServiceClient, scopes: str, statuses: tuple[int, ...]
) -> None:
    headers = bearer(client, scopes)

    found = tuple(
        client.request(method, "/v1/mine", headers=headers).status_code
        for method in ("GET", "POST", "DELETE")
    )

    assert found == statuses


def test_a_scope_that_is_missing_is_named(client: ServiceClient) -> None:
    body = client.post("/v1/mine", headers=bearer(client, "read")).json()

    assert body["type"] == "/problems/forbidden"
    assert "this needs write" in body["detail"]


@pytest.mark.parametrize(
    "host", ["rebound.example:8000", "ai", "10.0.0.7", "localhost.example", "", "127.0.0.1.nip.io"]
)
def test_without_keys_a_name_that_another_site_could_own_is_refused(
    client: ServiceClient, host: str
) -> None:
    response = client.get("/v1/mine", headers={"Host": host})

    assert response.status_code == 403
    assert "DIFFICULTY_ALLOWED_HOSTS" in response.json()["remedy"]


@pytest.mark.parametrize(
    "host", ["localhost:8000", "127.0.0.1:8000", "[::1]:8000", "LOCALHOST", "x.localhost"]
)
def test_without_keys_names_and_addresses_of_this_machine_are_answered(
    client: ServiceClient, host: str
) -> None:
    assert client.get("/v1/mine", headers={"Host": host}).status_code == 200


def test_without_keys_a_name_that_the_operator_allows_is_answered_and_no_other(
    tmp_path: Path,
) -> None:
    with client_of(tmp_path, allowed_hosts=("scores.example.org",)) as client:
        add_routes(client.app)  # type: ignore[arg-type]

        hosts = ("scores.example.org", "localhost")
        answers = [client.get("/v1/mine", headers={"Host": host}) for host in hosts]

    assert [answer.status_code for answer in answers] == [200, 400]


def test_with_a_key_any_name_is_answered(client: ServiceClient) -> None:
    headers = {"Host": "difficulty.example", **bearer(client, "read")}

    assert client.get("/v1/mine", headers=headers).status_code == 200


def test_a_route_without_the_middleware_is_closed() -> None:
    app = FastAPI()

    add_handlers(app)
    add_routes(app)

    assert ServiceClient(app).get("/v1/mine").status_code == 401


def test_a_principal_of_a_key_knows_the_scopes_implied(client: ServiceClient) -> None:
    response = client.delete("/v1/mine", headers=bearer(client, "admin"))

    assert response.json() == ["admin", "read", "read-all", "write"]


def test_once_a_key_is_in_use_a_request_without_one_is_refused_without_a_look_up(
    client: ServiceClient,
) -> None:
    statements: list[str] = []
    event.listen(
        client.engine, "before_cursor_execute", lambda *arguments: statements.append(arguments[2])
    )
    headers = bearer(client, "read")
    assert client.get("/v1/mine", headers=headers).status_code == 200
    assert statements
    statements.clear()

    refused = client.get("/v1/mine")

    assert (refused.status_code, refused.json()["detail"]) == (401, "there is no key")
    assert not statements
    assert client.get("/v1/mine", headers={"X-API-Key": "wrong"}).status_code == 401
    assert client.get("/v1/mine", headers=headers).status_code == 200
