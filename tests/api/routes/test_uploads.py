"""Datasets are sent in parts over HTTP and belong to their key."""

import errno
import io
import os
import threading
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fastapi import FastAPI, Request
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.http.api_keys import read_key, write_key
from api.http.principals import Principal
from api.http.problem_responses import add_handlers
from api.routes import uploads
from api.settings import Settings
from api.uploads import stream as upload_stream
from api.uploads.checking import UploadChecks
from api.uploads.store import get_upload, locked, upload_path
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.datasets.storage import boundary_at
from tests.service import announce

LIMIT = 300_000


def caller(request: Request) -> Principal:
    owner = request.headers.get("x-owner", "")
    return Principal(owner, frozenset({"read", "write"}))


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", max_upload_bytes=LIMIT)


@pytest.fixture
def client(sqlite_engine: Engine, settings: Settings) -> Iterator[TestClient]:
    app = FastAPI()
    app.include_router(uploads.router)
    app.dependency_overrides = {read_key: caller, write_key: caller}
    add_handlers(app)
    with closing(UploadChecks(settings.upload_check_seconds)) as checks:
        app.state.services = SimpleNamespace(
            engine=sqlite_engine, settings=settings, upload_checks=checks
        )
        yield TestClient(app, base_url="http://localhost")


@pytest.fixture(scope="module")
def photos() -> bytes:
    """A zip with two classes."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as opened:
        for name in ("cat/1.png", "dog/1.png"):
            opened.writestr(name, os.urandom(1000))
    return data.getvalue()


def test_an_upload_in_parts_is_the_file_that_was_sent(
    client: TestClient, settings: Settings, photos: bytes
) -> None:
    address = announce(client, size=len(photos))

    first = client.put(address, content=photos[:700])
    told = client.head(address)
    rest = f"bytes 700-{len(photos) - 1}/{len(photos)}"
    last = client.put(address, content=photos[700:], headers={"Content-Range": rest})

    assert (first.status_code, first.json()["state"]) == (200, "open")
    assert told.headers["Upload-Offset"] == "700"
    assert last.json()["state"] == "complete"
    path = upload_path(settings, last.json()["id"], "zip")
    assert path.read_bytes() == photos
    dataset = open_dataset(str(path), DatasetOptions(boundary=boundary_at(str(path))))
    assert dataset.class_names == ("cat", "dog")


def test_an_upload_of_unknown_size_is_completed_by_the_client(
    client: TestClient, photos: bytes
) -> None:
    address = announce(client)
    client.put(address, content=photos)

    done = client.put(f"{address}?offset={len(photos)}&complete=true")

    assert (done.json()["state"], done.json()["received"]) == ("complete", len(photos))
    assert client.get(address).json() == done.json()


@pytest.mark.parametrize("offset", [0, 10, 5000])
def test_a_wrong_offset_is_answered_with_the_right_one(
    client: TestClient, photos: bytes, offset: int
) -> None:
    address = announce(client)
    client.put(address, content=photos[:100])

    answer = client.put(f"{address}?offset={offset}", content=b"x")

    assert answer.status_code == 409
    assert answer.headers["Upload-Offset"] == "100"
    assert client.get(address).json()["received"] == 100


def test_a_complete_upload_takes_no_more(client: TestClient, photos: bytes) -> None:
    address = announce(client, size=len(photos))
    client.put(address, content=photos)

    assert client.put(f"{address}?offset={len(photos)}", content=b"x").status_code == 413
    assert client.put(f"{address}?offset={len(photos)}").status_code == 409


@pytest.mark.parametrize(
    ("header", "status"),
    [
        ("bytes 0-3/2", 400),
        ("bytes 5-3/*", 400),
        ("bytes */100", 400),
        ("pages 0-3/4", 400),
        ("bytes 0-99999999999999999999/*", 400),
        ("bytes ٠-٣/*", 400),  # noqa: RUF001
        ("bytes 0-99/100", 400),  # more than the body has
        ("bytes 0-1/100", 400),  # less than the body has
        (f"bytes 0-{LIMIT}/*", 413),
    ],
)
def test_a_range_that_does_not_fit_is_refused(client: TestClient, header: str, status: int) -> None:
    address = announce(client)

    answer = client.put(address, content=b"abcd", headers={"Content-Range": header.encode()})

    assert answer.status_code == status


def test_the_size_cannot_change_on_the_way(client: TestClient) -> None:
    address = announce(client, size=10)

    answer = client.put(address, content=b"abcd", headers={"Content-Range": "bytes 0-3/11"})

    assert answer.status_code == 409


def test_a_body_that_is_too_large_is_refused_by_its_declared_and_by_its_actual_length(
    client: TestClient, settings: Settings
) -> None:
    said = client.post("/v1/uploads", json={"format": "tar", "size": LIMIT + 1})
    address = announce(client)

    declared = client.put(address, content=bytes(LIMIT + 1))
    streamed = client.put(address, content=(bytes(1000) for _ in range(LIMIT // 1000 + 1)))

    assert (said.status_code, said.json()["field"]) == (413, "size")
    assert (declared.status_code, streamed.status_code) == (413, 413)
    assert sum(file.stat().st_size for file in settings.upload_dir.iterdir()) <= LIMIT


def test_two_requests_at_once_do_not_mix(
    client: TestClient, settings: Settings, photos: bytes
) -> None:
    address = announce(client)
    path = upload_path(settings, address.rpartition("/")[2], "zip")

    with locked(path):
        sent = client.put(address, content=photos)
        deleted = client.delete(address)

    assert (sent.status_code, deleted.status_code) == (409, 409)
    assert client.put(address, content=photos).status_code == 200


def test_concurrent_requests_store_each_byte_once(client: TestClient, photos: bytes) -> None:
    address = announce(client)
    statuses = []

    def send() -> None:
        statuses.append(client.put(address, content=photos).status_code)

    threads = [threading.Thread(target=send) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(statuses) == [200] + [409] * 5
    assert client.get(address).json()["received"] == len(photos)


def test_a_full_disk_is_answered_with_the_offset_to_resume_at(
    client: TestClient, photos: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = announce(client)
    client.put(address, content=photos[:100])

    def full(descriptor: int, data: bytes) -> None:
        os.write(descriptor, data[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(upload_stream, "write_all", full)
        answer = client.put(f"{address}?offset=100", content=photos[100:])
    done = client.put(f"{address}?offset=100&complete=true", content=photos[100:])

    assert (answer.status_code, answer.headers["Upload-Offset"]) == (507, "100")
    assert answer.json()["type"] == "/problems/storage"
    assert done.json()["state"] == "complete"


def test_a_key_neither_sees_nor_changes_what_belongs_to_another(
    client: TestClient, sqlite_engine: Engine
) -> None:
    address = announce(client)
    other = {"x-owner": "other"}

    answers = [
        client.get(address, headers=other),
        client.put(address, content=b"x", headers=other),
        client.delete(address, headers=other),
        client.get("/v1/uploads/no%00id"),
    ]

    assert [answer.status_code for answer in answers] == [404] * 4
    assert client.get("/v1/uploads", headers=other).json() == {"uploads": []}
    assert get_upload(sqlite_engine, None, address.rpartition("/")[2]) is not None


def test_uploads_are_listed_newest_first_page_by_page(client: TestClient) -> None:
    made = [announce(client).rpartition("/")[2] for _ in range(3)]

    page = client.get("/v1/uploads?limit=2").json()["uploads"]
    rest = client.get(f"/v1/uploads?before={page[-1]['id']}").json()["uploads"]

    assert sorted(made, reverse=True) == [each["id"] for each in (*page, *rest)]


@pytest.mark.parametrize(
    "body", [{}, {"format": "rar"}, {"format": "tar", "size": 0}, {"format": "tar", "x": 1}]
)
def test_an_announcement_that_makes_no_sense_is_refused(
    client: TestClient, body: dict[str, Any]
) -> None:
    assert client.post("/v1/uploads", json=body).status_code == 422
