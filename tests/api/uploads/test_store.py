"""Rows and files of uploads."""

import os
from pathlib import Path

import pytest
from sqlalchemy import Engine, update

from api.settings import Settings
from api.storage.tables import UPLOADS
from api.uploads.store import (
    advance,
    appending,
    complete,
    create_upload,
    delete_upload,
    delete_upload_file,
    expired_uploads,
    get_upload,
    touch,
    upload_path,
)


def test_an_upload_goes_from_open_to_complete(engine: Engine) -> None:
    upload = create_upload(engine, "me", "tar", 10)

    advance(engine, upload.id, 4)
    half = get_upload(engine, "me", upload.id)
    done = complete(engine, upload.id, 10, "ab" * 32)

    assert (upload.state, upload.received, upload.size) == ("open", 0, 10)
    assert half is not None
    assert half.received == 4
    assert (done.state, done.received, done.sha256) == ("complete", 10, "ab" * 32)


def test_an_upload_is_hidden_from_other_owners(engine: Engine) -> None:
    upload = create_upload(engine, "me", "parquet", None)

    assert get_upload(engine, "you", upload.id) is None
    assert get_upload(engine, None, upload.id) == upload
    assert get_upload(engine, None, "no\x00id") is None


def test_only_what_was_not_used_for_long_expires(engine: Engine) -> None:
    old, used = (create_upload(engine, "me", "tar", 1) for _ in range(2))
    with engine.begin() as connection:
        connection.execute(update(UPLOADS).values(used_at=1000.0))

    touch(engine, used.id)

    assert [upload.id for upload in expired_uploads(engine, 60)] == [old.id]


def test_a_deleted_upload_is_gone(engine: Engine) -> None:
    upload = create_upload(engine, "me", "tar", 1)

    delete_upload(engine, upload.id)

    assert get_upload(engine, "me", upload.id) is None


def test_appending_resumes_at_the_offset_and_truncates_what_was_not_recorded(
    tmp_path: Path,
) -> None:
    path = tmp_path / "uploads" / "x.tar"
    with appending(path, 0) as descriptor:
        os.write(descriptor, b"0123456789")

    with appending(path, 4) as descriptor:
        os.write(descriptor, b"ab")

    assert path.read_bytes() == b"0123ab"


def test_two_cannot_append_at_once(tmp_path: Path) -> None:
    with (
        appending(tmp_path / "x.tar", 0),
        pytest.raises(BlockingIOError),
        appending(tmp_path / "x.tar", 0),
    ):
        pass


def test_a_process_that_is_being_started_keeps_no_upload_locked(tmp_path: Path) -> None:
    with appending(tmp_path / "x.tar", 0) as descriptor:
        copy_of_the_process = os.dup(descriptor)

    with appending(tmp_path / "x.tar", 0) as descriptor:
        os.write(descriptor, b"next")

    os.close(copy_of_the_process)
    assert (tmp_path / "x.tar").read_bytes() == b"next"


def test_a_gap_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="before byte 5"), appending(tmp_path / "x.tar", 5):
        pass


def test_deleting_a_file_twice_is_no_error(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    path = upload_path(settings, "abc", "tar")
    path.parent.mkdir()
    path.write_bytes(b"x")

    for _ in range(2):
        delete_upload_file(settings, "abc", "tar")

    assert not path.exists()
