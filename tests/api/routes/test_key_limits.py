"""A key of some roots sees and submits nothing else, and one that has ended nothing at all."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine

from api.jobs.reviewers import share_job
from api.jobs.store import SubmitLimits, submit
from api.storage.database import now
from api.storage.keys import Terms, change_key, create_key, list_keys
from tests.service import ServiceClient, assert_problem, client_of

ROOTS = ("photos", "scans")
LIMITS = SubmitLimits(9, 1)


@dataclass(frozen=True)
class Caller:
    """A key and a client that sends it."""

    client: ServiceClient
    id: str
    secret: str

    def send(self, method: str, path: str, **arguments: Any) -> Any:  # noqa: ANN401
        headers = {"X-API-Key": self.secret}
        return self.client.request(method, path, headers=headers, **arguments)

    def jobs(self) -> set[str]:
        return {job["id"] for job in self.send("GET", "/v1/jobs").json()["jobs"]}


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    """A client of a service with two roots, each with a folder."""
    for name in ROOTS:
        (tmp_path / name / f"{name}-of-may").mkdir(parents=True)
    roots = {name: str(tmp_path / name) for name in ROOTS}
    with client_of(tmp_path / "data", roots=roots) as client:
        yield client


@pytest.fixture
def new_caller(client: ServiceClient) -> Callable[..., Caller]:
    def make(scopes: str = "write", roots: tuple[str, ...] | None = ("photos",)) -> Caller:
        terms = Terms(roots=None if roots is None else frozenset(roots))
        key, secret = create_key(client.engine, "test", scopes.split(","), terms)
        return Caller(client, key.id, secret)

    return make


@pytest.fixture
def job_of(engine: Engine) -> Callable[..., str]:
    """Submits a job of a key; gives its id."""

    def make(owner: str, root: str | None) -> str:
        dataset = {"upload": "0" * 26} if root is None else {"root": root, "path": ""}
        return submit(engine, owner, {"dataset": dataset}, None, LIMITS)[0].id

    return make


def test_a_key_of_one_root_looks_into_it_and_into_no_other(
    new_caller: Callable[..., Caller],
) -> None:
    caller = new_caller()

    listed = caller.send("GET", "/v1/folders").json()["entries"]
    own = caller.send("GET", "/v1/folders?root=photos").json()["entries"]
    other = caller.send("GET", "/v1/folders?root=scans")
    none = caller.send("GET", "/v1/folders?root=nowhere")

    assert [each["name"] for each in listed] == ["photos"]
    assert [each["name"] for each in own] == ["photos-of-may"]
    assert_problem(other, 422, "invalid-request", "dataset.root")
    assert other.json()["detail"] == none.json()["detail"].replace("nowhere", "scans")
    assert other.json()["detail"].endswith("the roots are: photos")


@pytest.mark.parametrize("address", ["/v1/jobs", "/v1/estimates"])
def test_a_key_of_one_root_submits_and_estimates_jobs_of_it_alone(
    new_caller: Callable[..., Caller], address: str
) -> None:
    caller = new_caller("admin")

    def answer(root: str) -> Any:  # noqa: ANN401
        body = {"dataset": {"root": root, "path": f"{root}-of-may"}}
        return caller.send("POST", address, json=body)

    assert answer("photos").json().get("field") != "dataset.root"
    assert_problem(answer("scans"), 422, "invalid-request", "dataset.root")


def test_the_form_of_a_new_job_offers_and_takes_only_the_roots_of_the_key(
    new_caller: Callable[..., Caller],
) -> None:
    caller = new_caller()
    entries = {"root": "scans", "path": "scans-of-may", "token": "x", "source": "root"}

    page = caller.send("GET", "/").text
    sent = caller.send("POST", "/", data=entries)

    assert "photos" in page
    assert "scans" not in page
    assert sent.status_code == 422
    assert "there is no root" in sent.text
    assert caller.jobs() == set()


@pytest.mark.parametrize("scopes", ["write", "read-all,write", "admin"])
def test_jobs_of_other_roots_are_as_if_there_were_none(
    new_caller: Callable[..., Caller], job_of: Callable[..., str], engine: Engine, scopes: str
) -> None:
    caller, other = new_caller(scopes), new_caller(roots=None)
    own = {root: job_of(caller.id, root) for root in (*ROOTS, None)}
    others = {root: job_of(other.id, root) for root in (*ROOTS, None)}
    share_job(engine, others["scans"], caller.id)

    missing = caller.send("GET", f"/v1/jobs/{'0' * 26}").json()

    seen = {own["photos"], own[None]} | ({others["photos"]} if scopes != "write" else set())
    assert caller.jobs() == seen
    for job in (own["scans"], others["scans"], others[None]):
        for method, path in (
            ("GET", f"/v1/jobs/{job}"),
            ("DELETE", f"/v1/jobs/{job}"),
            ("GET", f"/v1/jobs/{job}/events"),
            ("GET", f"/v1/jobs/{job}/scores.parquet"),
            ("POST", f"/v1/gaussians/{job}/score"),
            ("GET", f"/jobs/{job}"),
            ("POST", f"/jobs/{job}/try-again"),
        ):
            answer = caller.send(method, path, data={"token": "x"})
            assert answer.status_code == 404, (method, path)
            assert answer.json() == missing | {"detail": f"there is no job '{job}'"}
    assert other.jobs() == set(others.values())
    if scopes == "admin":
        listed = caller.send("GET", f"/v1/jobs?owner={other.id}").json()["jobs"]
        assert [each["id"] for each in listed] == [others["photos"]]


def test_an_upload_that_is_shared_is_seen_by_a_key_of_any_root(
    new_caller: Callable[..., Caller], job_of: Callable[..., str], engine: Engine
) -> None:
    caller, other = new_caller(roots=()), new_caller(roots=None)
    shared = job_of(other.id, None)

    share_job(engine, shared, caller.id)

    assert caller.jobs() == {shared}


@pytest.mark.parametrize("field", ["marks", "gaussians"])
def test_no_job_builds_on_one_whose_root_its_key_has_lost(
    new_caller: Callable[..., Caller], job_of: Callable[..., str], field: str
) -> None:
    caller = new_caller()
    lost = job_of(caller.id, "scans")
    body = {"dataset": {"root": "photos", "path": "photos-of-may"}, field: lost}

    answer = caller.send("POST", "/v1/jobs", json=body)

    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert answer.json()["detail"] == f"there is no job {lost!r}"


def test_jobs_come_back_with_their_root(
    new_caller: Callable[..., Caller], job_of: Callable[..., str], engine: Engine
) -> None:
    caller = new_caller(roots=ROOTS)
    job = job_of(caller.id, "scans")

    before = caller.jobs()
    change_key(engine, caller.id, lambda _: Terms(roots=frozenset({"photos"})))
    without = caller.jobs()
    change_key(engine, caller.id, lambda _: Terms())

    assert (before, without, caller.jobs()) == ({job}, set(), {job})


def test_a_key_without_any_root_still_sends_datasets_of_its_own(
    new_caller: Callable[..., Caller],
) -> None:
    caller = new_caller(roots=())

    created = caller.send("POST", "/v1/uploads", json={"format": "zip"})
    listed = caller.send("GET", "/v1/folders").json()

    assert created.status_code == 201
    assert listed["entries"] == []


def test_a_key_that_has_ended_is_told_when_also_as_it_signs_in(
    new_caller: Callable[..., Caller], engine: Engine, set_clock: Callable[[float], None]
) -> None:
    caller = new_caller()
    with engine.connect() as connection:
        end = now(connection) + 60
    change_key(engine, caller.id, lambda terms: replace(terms, expires_at=end))

    valid = caller.send("GET", "/v1/jobs")
    set_clock(61)
    ended = caller.send("GET", "/v1/jobs")
    sign_in = caller.client.post("/sign-in", data={"key": caller.secret})
    unknown = caller.client.post("/sign-in", data={"key": "difficulty_unknown"})

    assert valid.status_code == 200
    assert_problem(ended, 401, "unauthorised")
    assert ended.json()["detail"].startswith("the key expired at ")
    assert sign_in.status_code == unknown.status_code == 401
    assert "The key expired at " in sign_in.text
    assert "The key is unknown, revoked or replaced." in unknown.text


def test_the_last_use_of_a_key_is_recorded_as_the_server_ends_at_the_latest(
    tmp_path: Path, sqlite_engine: Engine, sqlite_url: str
) -> None:
    used, secret = create_key(sqlite_engine, "used", ["read"])
    create_key(sqlite_engine, "unused", ["read"])

    with client_of(tmp_path, database_url=sqlite_url) as client:
        for each in (secret, "difficulty_wrong"):
            client.get("/v1/jobs", headers={"X-API-Key": each})
        before = [key.used_at for key in list_keys(sqlite_engine)]

    assert before == [None, None]
    assert {key.id for key in list_keys(sqlite_engine) if key.used_at} == {used.id}


def test_fifty_wrong_secrets_look_alike_and_count_on_the_address(
    tmp_path: Path, sqlite_engine: Engine, sqlite_url: str
) -> None:
    right = create_key(sqlite_engine, "right", ["read"])[1]
    wrong = [right[:-number] for number in range(1, 31)] + [f"{right}{n}" for n in range(20)]

    with client_of(tmp_path, database_url=sqlite_url, rate_limit="50/minute") as client:
        answers = [client.get("/v1/jobs", headers={"X-API-Key": each}) for each in wrong]
        next_one = client.get("/v1/jobs", headers={"X-API-Key": "another"})
        valid = client.get("/v1/jobs", headers={"X-API-Key": right})

    assert {(each.status_code, each.text) for each in answers} == {(401, answers[0].text)}
    assert next_one.status_code == 429
    assert valid.status_code == 200
