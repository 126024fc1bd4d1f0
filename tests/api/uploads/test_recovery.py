"""An upload whose server ended before the check is completed by the next one."""

import hashlib
import time
import zipfile
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Engine
from starlette.testclient import TestClient

from api.app import create_app
from api.settings import Settings
from api.uploads.checking import UploadChecks
from api.uploads.store import (
    Upload,
    advance,
    complete_received,
    create_upload,
    get_upload,
    locked,
    upload_path,
)

LIMIT = 600.0  # seconds of a check
ABORTING = Path(__file__).parents[2] / "data" / "aborting.parquet"


@pytest.fixture
def settings(tmp_path: Path, sqlite_url: str) -> Settings:
    return Settings(
        data_dir=tmp_path / "data",
        database_url=sqlite_url,
        device="cpu",
        default_backbone="builtin",
    )


def received(
    engine: Engine, settings: Settings, content: bytes, size: int, kind: str = "zip"
) -> Upload:
    """An upload of which `content` has arrived and nothing was checked."""
    upload = create_upload(engine, "", kind, size)
    path = upload_path(settings, upload.id, kind)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    advance(engine, upload.id, len(content))
    return upload


@pytest.fixture
def archive(tmp_path: Path) -> bytes:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("cat/1.png", b"an image")
    return path.read_bytes()


def state_of(engine: Engine, upload: Upload) -> str:
    stored = get_upload(engine, "", upload.id)
    assert stored is not None
    return stored.state


def test_it_is_checked_and_complete_when_the_server_starts_again(
    sqlite_engine: Engine, settings: Settings, archive: bytes
) -> None:
    upload = received(sqlite_engine, settings, archive, len(archive))

    with TestClient(create_app(settings)):
        deadline = time.monotonic() + 60.0
        while state_of(sqlite_engine, upload) != "complete":
            assert time.monotonic() < deadline
            time.sleep(0.02)

    stored = get_upload(sqlite_engine, "", upload.id)
    assert stored is not None
    assert stored.sha256 == hashlib.sha256(archive).hexdigest()


def test_one_whose_bytes_are_not_all_there_stays_open(
    sqlite_engine: Engine, settings: Settings, archive: bytes
) -> None:
    upload = received(sqlite_engine, settings, archive, len(archive) + 1)

    assert complete_received(sqlite_engine, settings, UploadChecks(LIMIT)) == 0
    assert state_of(sqlite_engine, upload) == "open"


def test_one_that_cannot_be_read_stays_open_and_holds_up_no_other(
    sqlite_engine: Engine, settings: Settings, archive: bytes
) -> None:
    damaged = received(sqlite_engine, settings, b"no archive", 10)
    lost = received(sqlite_engine, settings, archive, len(archive))
    upload_path(settings, lost.id, "zip").unlink()
    whole = received(sqlite_engine, settings, archive, len(archive))

    assert complete_received(sqlite_engine, settings, UploadChecks(LIMIT)) == 1

    assert [state_of(sqlite_engine, each) for each in (damaged, lost, whole)] == [
        "open",
        "open",
        "complete",
    ]
    assert not upload_path(settings, lost.id, "zip").exists()


def test_one_that_ends_the_process_that_reads_it_ends_no_server(
    sqlite_engine: Engine, settings: Settings, archive: bytes
) -> None:
    """Otherwise the server would end each time that it starts."""
    content = ABORTING.read_bytes()
    hostile = received(sqlite_engine, settings, content, len(content), "parquet")
    whole = received(sqlite_engine, settings, archive, len(archive))

    with closing(UploadChecks(LIMIT)) as checks:
        assert complete_received(sqlite_engine, settings, checks) == 1

    assert [state_of(sqlite_engine, each) for each in (hostile, whole)] == ["open", "complete"]


def test_one_that_is_being_checked_elsewhere_is_left_alone(
    sqlite_engine: Engine, settings: Settings, archive: bytes
) -> None:
    upload = received(sqlite_engine, settings, archive, len(archive))

    with locked(upload_path(settings, upload.id, "zip")):
        assert complete_received(sqlite_engine, settings, UploadChecks(LIMIT)) == 0

    assert state_of(sqlite_engine, upload) == "open"
