"""Servers of one database know the comparisons of each other, also of one that was killed."""

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from api.app import create_app
from api.jobs import comparisons as stored
from api.jobs.files import scratch_folder
from api.results import comparisons
from api.storage.tables import COMPARISONS
from tests.service import ServiceClient, ask

pytestmark = pytest.mark.analysis("leaks", "versions", "selection")

real_serve = comparisons.serve


@pytest.fixture
def other(client: ServiceClient) -> Iterator[ServiceClient]:
    """Another server of the same database and files."""
    settings = client.settings
    with ServiceClient(create_app(settings), base_url="http://localhost") as other:
        yield other


def wait_until(is_so: Callable[[], object]) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("it never was")


@pytest.mark.long
def test_another_server_tells_of_a_comparison_that_is_being_made(
    client: ServiceClient,
    other: ServiceClient,
    jobs: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(comparisons, "serve", partial(serve_after, tmp_path / "go"))
    address = f"/v1/jobs/{jobs[0]}/comparisons"
    body = {"kind": "select", "count": 2, "seed": 60}
    begun = client.post(address, json=body).raise_for_status().json()
    link = begun["links"]["self"]

    seen = other.get(link).raise_for_status().json()
    again = other.post(address, json=body)
    page = other.get(link.removeprefix("/v1")).raise_for_status().text
    (tmp_path / "go").touch()
    wait_until(lambda: client.get(link).json()["state"] != "running")

    assert (seen["state"], again.status_code) == ("running", 202)
    assert "<progress" in page
    assert other.get(link).json() == client.get(link).json()
    assert other.get(f"{link}/table.parquet").status_code == 200


def test_a_comparison_that_another_server_deletes_is_stopped(
    client: ServiceClient,
    other: ServiceClient,
    jobs: tuple[str, str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(comparisons, "serve", partial(serve_after, tmp_path / "never"))
    monkeypatch.setattr(comparisons, "TOLD_EVERY", 0.1)
    work = client.services.comparisons._work
    address = f"/v1/jobs/{jobs[0]}/comparisons"
    begun = client.post(address, json={"kind": "select", "count": 2, "seed": 61}).json()
    wait_until(work.pending)

    assert other.delete(begun["links"]["self"]).status_code == 204

    wait_until(lambda: client.services.comparisons._stop_unwanted() or not work.pending())
    assert client.get(begun["links"]["self"]).status_code == 404


@pytest.mark.slow
def test_a_comparison_whose_server_was_killed_can_be_asked_for_again(
    client: ServiceClient, jobs: tuple[str, str]
) -> None:
    services = client.services
    body = {"kind": "select", "count": 2, "seed": 62}
    found = ask(client, jobs[0], **body)
    with services.engine.begin() as connection:
        lost = COMPARISONS.c.id == found["id"]
        killed = {"state": "running", "maker": "killed", "seen_at": 0.0}
        connection.execute(COMPARISONS.update().where(lost).values(killed))

    ended = client.get(found["links"]["self"]).json()  # type: ignore[index]

    assert (ended["state"], ended["failure"]) == ("failed", stored.ENDED)
    assert ask(client, jobs[0], **body) == found


def serve_after(file: Path, *arguments: Any) -> None:  # noqa: ANN401 - in a process of its own
    while not file.exists():
        time.sleep(0.05)
    real_serve(*arguments)


@pytest.mark.slow
def test_scratch_files_of_comparisons_are_below_the_data(
    client: ServiceClient, jobs: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", "/nowhere")
    monkeypatch.setattr(tempfile, "tempdir", None)

    found = ask(client, jobs[0], kind="select", count=2, seed=63)

    assert found["state"] == "succeeded"
    settings = client.settings
    assert list(scratch_folder(settings).iterdir()) == []
