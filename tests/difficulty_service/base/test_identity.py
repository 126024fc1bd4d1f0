"""Digests of images, and stamps of files."""

import hashlib
import os
from pathlib import Path

from difficulty_service.base.files import content_digest, file_stamp, with_sample_id


def test_the_digest_is_sha_256() -> None:
    assert content_digest(b"image") == hashlib.sha256(b"image").digest()


def test_a_stamp_stays_as_long_as_the_file_does(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"image")

    before = file_stamp(str(file))
    file.read_bytes()

    assert before is not None
    assert file_stamp(str(file)) == before


def test_a_stamp_changes_with_the_size_and_with_the_path(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"image")
    before = file_stamp(str(file))

    file.write_bytes(b"images")
    longer = file_stamp(str(file))
    moved = file_stamp(str(file.rename(tmp_path / "b.png")))

    assert len({before, longer, moved}) == 3


def test_a_stamp_changes_where_a_program_puts_size_and_modification_time_back(
    tmp_path: Path,
) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"image")
    status, before = file.stat(), file_stamp(str(file))

    while file.stat().st_ctime_ns == status.st_ctime_ns:  # the clock of a file system is coarse
        file.write_bytes(b"IMAGE")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))

    assert file.stat().st_mtime_ns == status.st_mtime_ns
    assert file_stamp(str(file)) != before


def test_what_is_no_file_has_no_stamp(tmp_path: Path) -> None:
    assert file_stamp(str(tmp_path / "missing.png")) is None
    assert file_stamp("null\0byte") is None


def test_a_digest_with_an_id_changes_with_both() -> None:
    digests = {
        with_sample_id(content_digest(data), name) for data in (b"a", b"b") for name in ("x", "y")
    }

    assert len(digests) == 4
