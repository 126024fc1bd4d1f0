"""Jobs belong to the key that submitted them; an administrator sees and manages all."""

import pytest
from httpx2 import Response
from sqlalchemy import Engine

from api.storage.keys import create_key
from tests.service import ServiceClient

Body = dict[str, object]
Keys = dict[str, dict[str, str]]


@pytest.fixture
def keys(engine: Engine) -> Keys:
    """Headers with a key of two users and of an administrator, by name."""
    scopes = {
        "mine": ["write"],
        "theirs": ["write"],
        "reviewer": ["read-all", "write"],
        "admin": ["admin"],
    }
    return {name: {"X-API-Key": create_key(engine, name, each)[1]} for name, each in scopes.items()}


def test_one_key_sees_nothing_of_anothers_jobs(client: ServiceClient, body: Body) -> None:
    mine, theirs = (
        {"Authorization": f"Bearer {create_key(client.engine, name, ['write'])[1]}"}
        for name in ("mine", "theirs")
    )
    address = client.post("/v1/jobs", json=body, headers=mine).headers["Location"]

    unknown = client.get("/v1/jobs/" + "0" * 26, headers=theirs)

    for method, path in (("GET", ""), ("DELETE", ""), ("GET", "/events")):
        answer = client.request(method, address + path, headers=theirs)
        assert problem_of(answer) == (404, "/problems/not-found")
        assert answer.json() | {"detail": ""} == unknown.json() | {"detail": ""}
    assert client.get("/v1/jobs", headers=theirs).json()["jobs"] == []
    assert client.get(address, headers=mine).json()["state"] == "queued"


def test_an_administrator_sees_the_jobs_of_all_keys_or_of_one(
    client: ServiceClient, body: Body, keys: Keys
) -> None:
    mine, theirs = (
        client.post("/v1/jobs", json=body, headers=keys[name]).json() for name in ("mine", "theirs")
    )

    def listed(query: str = "") -> list[str]:
        page = client.get(f"/v1/jobs{query}", headers=keys["admin"]).json()
        return [job["id"] for job in page["jobs"]]

    assert mine["owner"] != theirs["owner"]
    assert listed() == [theirs["id"], mine["id"]]
    assert listed(f"?owner={mine['owner']}") == [mine["id"]]
    assert listed("?owner=nobody") == []
    assert client.get(mine["links"]["self"], headers=keys["admin"]).json() == mine


def test_only_an_administrator_lists_by_owner(
    client: ServiceClient, body: Body, keys: Keys
) -> None:
    job = client.post("/v1/jobs", json=body, headers=keys["mine"]).json()

    for name in ("mine", "theirs"):
        answer = client.get(f"/v1/jobs?owner={job['owner']}", headers=keys[name])
        assert problem_of(answer) == (403, "/problems/forbidden")


def test_a_reviewer_reads_the_jobs_of_others_but_neither_cancels_nor_removes_them(
    client: ServiceClient, body: Body, keys: Keys
) -> None:
    job = client.post("/v1/jobs", json=body, headers=keys["mine"]).json()
    address = job["links"]["self"]

    listed = client.get("/v1/jobs", headers=keys["reviewer"]).json()["jobs"]
    refused = client.delete(address, headers=keys["reviewer"])
    client.delete(address, headers=keys["mine"])
    refused_again = client.delete(address, headers=keys["reviewer"])

    assert listed == [job]
    for answer in (refused, refused_again):
        assert problem_of(answer) == (403, "/problems/forbidden")
    assert client.get(address, headers=keys["mine"]).json()["state"] == "cancelled"


def test_an_administrator_cancels_and_removes_the_jobs_of_others(
    client: ServiceClient, body: Body, keys: Keys
) -> None:
    address = client.post("/v1/jobs", json=body, headers=keys["mine"]).headers["Location"]

    cancelled = client.delete(address, headers=keys["admin"])
    events = client.get(f"{address}/events", headers=keys["admin"])
    removed = client.delete(address, headers=keys["admin"])

    assert (cancelled.status_code, cancelled.json()["state"]) == (200, "cancelled")
    assert "cancelled" in events.text
    assert removed.status_code == 204
    assert client.get(address, headers=keys["mine"]).status_code == 404


def test_a_key_that_may_read_submits_nothing(client: ServiceClient, body: Body) -> None:
    headers = {"X-API-Key": create_key(client.engine, "reader", ["read"])[1]}

    answer = client.post("/v1/jobs", json=body, headers=headers)

    assert problem_of(answer) == (403, "/problems/forbidden")


@pytest.mark.parametrize("what", ["scores.parquet", "scores", "errors", "thumbnails/cat/1.png"])
def test_results_of_another_key_are_as_if_they_were_not_there(
    client: ServiceClient, body: Body, keys: Keys, what: str
) -> None:
    submitted = client.post("/v1/jobs", json=body, headers=keys["mine"])
    address = submitted.headers["Location"]

    assert client.get(f"{address}/{what}", headers=keys["mine"]).status_code == 409
    assert client.get(f"{address}/{what}", headers=keys["theirs"]).status_code == 404
    assert client.get(f"{address}/{what}").status_code == 401


def problem_of(answer: Response) -> tuple[int, str]:
    """Status and type of a problem, which has a remedy."""
    assert answer.json()["remedy"]
    return answer.status_code, answer.json()["type"]
