"""Only one command at a time writes to a folder of features."""

import errno
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from filelock import FileLock

from difficulty_service.base.errors import FeatureStoreError
from difficulty_service.features.description import FeatureDescription
from difficulty_service.features.merging import merge_stores
from difficulty_service.features.previous import sole_writer, writable_store
from difficulty_service.features.store import create_store

WRITER = """
import sys, time
from pathlib import Path
from difficulty_service.features.previous import sole_writer

with sole_writer(Path(sys.argv[1])):
    print("writing", flush=True)
    time.sleep(600)
"""
DESCRIPTION = {"class_names": ["cat"], "num_shards": 0, "augment_runs": 0}


@contextmanager
def other_command(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that is writing to the folder."""
    with subprocess.Popen(  # noqa: S603 - our own program
        [sys.executable, "-c", WRITER, folder], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "writing\n"
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_a_folder_that_another_command_writes_to_is_refused_and_left_alone(tmp_path: Path) -> None:
    store = create_store(tmp_path, FeatureDescription.of(DESCRIPTION))
    unfinished = tmp_path / ".part-00000.arrow.1234.part"
    unfinished.touch()
    with (
        other_command(tmp_path),
        pytest.raises(FeatureStoreError, match=f"another command is writing .* {tmp_path}"),
        writable_store(
            tmp_path, FeatureDescription.of({**DESCRIPTION, "num_shards": 1}), resume=False
        ),
    ):
        pass
    assert unfinished.exists()
    assert store.description.num_shards == 0


@pytest.mark.slow
def test_stores_are_not_merged_into_one_that_is_being_written(tmp_path: Path) -> None:
    create_store(tmp_path / "part", FeatureDescription.of(DESCRIPTION))
    with other_command(tmp_path / "all"), pytest.raises(FeatureStoreError, match="another command"):
        merge_stores([tmp_path / "part"], tmp_path / "all")


@pytest.mark.slow
def test_a_command_that_was_killed_keeps_nobody_from_going_on(tmp_path: Path) -> None:
    with other_command(tmp_path) as process:
        process.kill()
        process.wait()
        with writable_store(tmp_path, FeatureDescription.of(DESCRIPTION)) as store:
            assert store.missing_shards() == []


def test_the_next_command_writes_when_one_has_ended(tmp_path: Path) -> None:
    for _ in range(2):
        with sole_writer(tmp_path / "features"):
            pass


def test_a_file_system_without_locks_lets_every_command_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: FileLock) -> NoReturn:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr(FileLock, "acquire", fail)
    with sole_writer(tmp_path), writable_store(tmp_path, FeatureDescription.of(DESCRIPTION)):
        assert (tmp_path / "store.json").exists()


def test_an_error_of_the_disk_is_not_taken_for_a_file_system_without_locks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_self: FileLock) -> NoReturn:
        raise OSError(errno.ENOSPC, "no space left on device")

    monkeypatch.setattr(FileLock, "acquire", fail)
    with pytest.raises(OSError, match="no space left"), sole_writer(tmp_path):
        pass


def test_a_file_is_no_place_for_features(tmp_path: Path) -> None:
    (tmp_path / "features").touch()
    with (
        pytest.raises(FeatureStoreError, match="is a file, but features are kept in a folder"),
        writable_store(tmp_path / "features", FeatureDescription.of(DESCRIPTION)),
    ):
        pass
