"""Thumbnails over HTTP: those that a client has already, deleted ones, and a full disk."""

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from api.jobs.store import Job
from api.settings import Settings
from tests.service import ServiceClient, assert_problem


@pytest.fixture
def address(settings: Settings, finished: Callable[[], Job]) -> str:
    """Address of the thumbnail of an image of a finished job."""
    for name in ("cat", "dog"):
        folder = Path(settings.roots["photos"]) / "train" / name
        folder.mkdir()
        Image.effect_noise((64, 48), 50).save(folder / "1.png")
    return f"/v1/jobs/{finished().id}/thumbnails/cat/1.png"


@pytest.mark.usefixtures("new_interpreters")
def test_a_client_that_has_the_thumbnail_need_not_fetch_it_again(
    client: ServiceClient, address: str
) -> None:
    whole = client.get(address)
    etag = whole.headers["ETag"]

    again = client.get(address, headers={"If-None-Match": etag})
    other = client.get(f"{address}?size=20", headers={"If-None-Match": etag})

    assert (whole.status_code, whole.headers["Content-Type"]) == (200, "image/jpeg")
    assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", etag)
    assert other.status_code == 200


def test_a_full_disk_is_named_where_a_thumbnail_cannot_be_written(
    client: ServiceClient, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object, **_options: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", "/srv/thumbnails/x")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        answer = client.get(f"{address}?size=33")

    assert_problem(answer, 507, "storage")
    assert "/srv" not in answer.text
    assert client.get(f"{address}?size=33").status_code == 200


def test_a_job_that_is_deleted_before_its_thumbnail_is_sent_is_not_found(
    client: ServiceClient, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    thumbnails = client.services.thumbnails
    stored = thumbnails.stored

    def stored_and_deleted(wanted: object) -> Path:
        path: Path = stored(wanted)
        shutil.rmtree(path.parent)
        return path

    client.get(address)
    monkeypatch.setattr(thumbnails, "stored", stored_and_deleted)

    assert_problem(client.get(address), 404, "not-found")
