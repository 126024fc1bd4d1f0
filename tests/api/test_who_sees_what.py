"""Every route by keys of every kind, as the table of docs/threat-model.md says."""

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from httpx2 import Response

from api.app import create_app
from api.settings import Settings
from api.storage.keys import Terms, change_key, create_key
from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of, run_next_job
from tests.small_network import SMALL

PAGE = Path(__file__).resolve().parents[2] / "docs" / "threat-model.md"
CLASSES = ("bird", "cat", "dog")
UNKNOWN = "0" * 26

pytestmark = pytest.mark.slow

KEYS: Mapping[str, tuple[list[str], Terms]] = {
    "owner": (["write"], Terms()),
    "shared": (["write"], Terms()),
    "reading": (["read"], Terms()),
    "read-all": (["read-all"], Terms()),
    "another": (["write"], Terms()),
    "other root": (["write"], Terms(roots=frozenset({"empty"}))),
    "read-all of a root": (["read-all"], Terms(roots=frozenset({"empty"}))),
    "lost root": (["write"], Terms()),
}
"""Scopes and terms of each kind of key; jobs are shared with those that are called so."""

SHARED_WITH = ("shared", "reading", "other root")


@dataclass(frozen=True)
class World:
    """A service with finished jobs."""

    client: ServiceClient
    secrets: Mapping[str, str]
    ids: Mapping[str, str]
    job: str = ""  # of the owner, shared with some keys
    kept: str = ""  # of the owner, shared with nobody
    comparison: str = ""  # of both, asked of the first
    lost: str = ""  # of the key that lost its root
    upload: str = ""  # of the owner

    def send(self, who: str, method: str, address: str, **options: Any) -> Response:  # noqa: ANN401
        headers = {"X-API-Key": self.secrets[who]} if who in self.secrets else {}
        return self.client.request(method, address, headers=headers, **options)

    def place(self, path: str, job: str) -> str:
        """The address of a route."""
        values = {
            "job_id": job,
            "comparison_id": self.comparison,
            "upload_id": self.upload,
            "key_id": self.ids["another"],
            "table": "cameras.csv",
            "row": "0",
            "number": "0",
            "first": "0",
            "second": "1",
            "sample_id": "cat/1.png",
        }
        if path == "/static":  # whose files have a fingerprint in their names
            page = self.client.get("/sign-in").text
            return re.findall(r'"(/static/[^"]*)"', page)[0]
        return re.sub(r"\{(\w+)(:path)?\}", lambda found: values[found[1]], path)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("photos")
    write_image_folder(folder / "photos" / "train", CLASSES, 8, size=(16, 16))
    write_image_folder(folder / "photos" / "test", CLASSES[::-1], 6, size=(16, 16))
    (folder / "empty").mkdir()
    roots = {name: str(folder / name) for name in ("photos", "empty")}
    data = tmp_path_factory.mktemp("service")
    options = {"default_backbone": SMALL, "follow_redirects": False, "rate_limit": "100000/minute"}
    with client_of(data, roots=roots, **options) as client:
        engine = client.engine
        made = {
            name: create_key(engine, name, scopes, terms) for name, (scopes, terms) in KEYS.items()
        }
        world = World(
            client,
            {name: secret for name, (_, secret) in made.items()},
            {name: key.id for name, (key, _) in made.items()},
        )

        def score(who: str, path: str) -> str:
            body = {"dataset": {"root": "photos", "path": path}, "shrinkage": "ledoit-wolf"}
            world.send(who, "POST", "/v1/jobs", json=body).raise_for_status()
            return run_next_job(client).id

        job, kept, lost = (
            score("owner", "train"),
            score("owner", "test"),
            score("lost root", "train"),
        )
        change_key(engine, world.ids["lost root"], lambda terms: replace(terms, roots=frozenset()))
        for name in SHARED_WITH:
            address = f"/v1/jobs/{job}/reviewers/{world.ids[name]}"
            world.send("owner", "PUT", address).raise_for_status()
        asked = {"kind": "diff", "old": kept, "permutations": 0}
        found = world.send("owner", "POST", f"/v1/jobs/{job}/comparisons", json=asked).json()
        while found["state"] == "running":
            time.sleep(0.1)
            found = world.send("owner", "GET", found["links"]["self"]).json()
        assert found["state"] == "succeeded", found
        lines = [f"{name}/{number}.png,{number % 2}" for name in CLASSES for number in range(8)]
        sent = "\n".join(["sample_id,camera", *lines]).encode()
        address = f"/v1/jobs/{job}/columns/cameras.csv"
        world.send("owner", "PUT", address, content=sent).raise_for_status()
        upload = world.send("owner", "POST", "/v1/uploads", json={"format": "zip"}).json()["id"]
        yield replace(world, job=job, kept=kept, comparison=found["id"], lost=lost, upload=upload)


def routes() -> list[tuple[str, str]]:
    """Method and path of everything that the service answers."""
    app = create_app(Settings())
    found = []
    for route in app.routes:
        contexts = getattr(route, "effective_route_contexts", list)
        for each in [*contexts()] or [route]:
            methods = getattr(each, "methods", None) or {"GET"}
            found += [(method, each.path) for method in sorted(methods)]
    return found


ONE_MARK = {"marks": [{"row": 0, "decision": {"mark": "keep", "label": None}}]}
DATASET = {"json": {"dataset": {"root": "photos", "path": "train"}}}
BODIES: Mapping[str, Mapping[str, object]] = {
    "POST /v1/estimates": DATASET,
    "POST /v1/jobs": DATASET,
    "PUT /v1/jobs/{job_id}/columns/{table}": {"content": b"sample_id,camera\ncat/1.png,a\n"},
    "POST /v1/jobs/{job_id}/comparisons": {"json": {"kind": "select", "count": 1}},
    "POST /v1/jobs/{job_id}/marks": {"json": ONE_MARK},
    "POST /v1/jobs/{job_id}/decisions": {"json": ONE_MARK},
    "POST /v1/uploads": {"json": {"format": "zip"}},
    "PUT /v1/uploads/{upload_id}": {"content": b"x"},
    "POST /v1/gaussians/{job_id}/score": {"json": {"samples": []}},
    "POST /jobs/{job_id}/score-again": {"data": {"token": "x"}},
    "POST /jobs/{job_id}/try-again": {"data": {"token": "x"}},
    "POST /jobs/{job_id}/copies": {"data": {"row": "0", "mark": "drop"}},
    "POST /jobs/{job_id}/faults": {"data": {"fault": "dark", "mark": "drop"}},
    "POST /jobs/{job_id}/columns": {"files": {"table": ("a.csv", b"sample_id,a\n")}},
    "POST /jobs/{job_id}/columns/remove": {"data": {"name": "cameras.csv"}},
    "POST /jobs/{job_id}/comparisons": {"data": {"kind": "select", "count": "1"}},
    "POST /jobs/{job_id}/reviewers": {"data": {"key_id": UNKNOWN}},
    "POST /jobs/{job_id}/reviewers/remove": {"data": {"key_id": UNKNOWN}},
    "POST /jobs/{job_id}/images/mark-matching": {"data": {"mark": "keep", "expected": "0"}},
    "POST /jobs/{job_id}/images/views": {"data": {"name": "mine", "query": "?q=cat"}},
    "POST /jobs/{job_id}/images/views/delete": {"data": {"name": "mine"}},
    "POST /jobs/{job_id}/images/{row}": {"data": {"mark": "keep"}},
    "POST /jobs/{job_id}/images/{row}/decide": {"data": {"mark": "keep"}},
}
"""What is sent with a request, so that only the key may be a reason to refuse it."""

QUERIES = {"GET /jobs/{job_id}/map/column": "?name=camera"}
ENDLESS = "GET /v1/jobs/{job_id}/events"

KINDS = {
    "owner": "the owner",
    "shared": "shared with",
    "reading": "shared, `read` alone",
    "read-all": "`read-all`",
    "another": "of others",
    "other root": "of others",
    "lost root": "of others",
    "nobody": "no key",
}
"""The column of the page for each kind of key."""


def table() -> list[dict[str, str]]:
    """The rows of the page."""
    text = PAGE.read_text().partition("## Who sees what")[2].partition("\n## ")[0]
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    names, _, *rows = lines
    return [dict(zip(names, row, strict=True)) for row in rows]


def row_of(request: str) -> dict[str, str]:
    """The row of a request: that with the longest address."""
    found = [
        (len(pattern), number)
        for number, row in enumerate(table())
        for pattern in re.findall("`([^`]*)`", row["requests"])
        if request == pattern or (pattern.endswith("…") and request.startswith(pattern[:-1]))
    ]
    assert found, f"{request} has no row on {PAGE.name}"
    return table()[max(found)[1]]


def requests() -> list[str]:
    return [f"{method} {path}" for method, path in routes() if method != "HEAD"]


def test_every_request_has_one_row_and_every_row_a_request() -> None:
    used = {row_of(request)["what"] for request in requests()}

    assert used == {row["what"] for row in table()}


@pytest.mark.parametrize("who", [name for name in KINDS if name != "owner"])
def test_what_answers_a_key_is_what_the_page_says(world: World, who: str) -> None:
    job = world.lost if who == "lost root" else world.job
    different = []
    for request in requests():
        if request == ENDLESS and row_of(request)[KINDS[who]] == "yes":
            continue  # it has a test of its own
        method, _, path = request.partition(" ")
        address = world.place(path, job) + QUERIES.get(request, "")
        answer = world.send(who, method, address, **BODIES.get(request, {}))
        expected = row_of(request)[KINDS[who]]
        if expected == "yes":
            is_hidden = answer.status_code == 404 and f"no job '{job}'" in unescape(answer.text)
            is_right = answer.status_code not in (401, 403) and not is_hidden
        else:
            is_right = answer.status_code == int(expected)
        if not is_right:
            different.append(f"{request}: {answer.status_code}, not {expected}")
    assert different == []


def test_a_key_that_reads_everything_of_a_root_sees_nothing_of_others(world: World) -> None:
    for request in requests():
        method, _, path = request.partition(" ")
        if method == "GET" and "{" in path:
            address = world.place(path, world.job) + QUERIES.get(request, "")
            assert world.send("read-all of a root", "GET", address).status_code == 404, request


def test_lists_have_nothing_of_others(world: World) -> None:
    finished = {world.job, world.kept, world.lost}
    for who in ("another", "other root", "lost root", "read-all of a root"):
        jobs = world.send(who, "GET", "/v1/jobs").json()["jobs"]
        assert finished.isdisjoint(job["id"] for job in jobs)
        page = world.send(who, "GET", "/").text
        assert all(job not in page for job in finished)
    for who in ("shared", "reading"):
        jobs = world.send(who, "GET", "/v1/jobs").json()["jobs"]
        assert finished.intersection(job["id"] for job in jobs) == {world.job}
        address = f"/jobs/{world.job}/comparisons"
        assert world.send(who, "GET", f"/v1{address}").json()["comparisons"] == []
        assert world.comparison not in world.send(who, "GET", address).text
    for who in ("owner", "read-all"):
        found = world.send(who, "GET", f"/v1/jobs/{world.job}/comparisons").json()
        assert [each["id"] for each in found["comparisons"]] == [world.comparison]


def test_a_comparison_is_seen_once_all_of_its_jobs_are_shared_and_no_longer(world: World) -> None:
    address = f"/v1/jobs/{world.job}/comparisons/{world.comparison}"
    sharing = f"/v1/jobs/{world.kept}/reviewers/{world.ids['shared']}"

    world.send("owner", "PUT", sharing).raise_for_status()
    assert world.send("shared", "GET", address).status_code == 200
    world.send("owner", "DELETE", sharing).raise_for_status()

    assert world.send("shared", "GET", address).status_code == 404
