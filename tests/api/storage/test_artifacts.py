"""Artifacts behave the same in a folder and in remote storage."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from moto.server import ThreadedMotoServer

from api.storage.artifacts import Artifacts, open_artifacts
from tests.api.stored_results import keys_below


@pytest.fixture(scope="module")
def s3_endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0)
    server.start()
    yield "{}:{}".format(*server.get_host_and_port())
    server.stop()


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    bucket = f"results-{uuid.uuid4().hex}"
    client = boto3.client("s3", endpoint_url=f"http://{s3_endpoint}", region_name="us-east-1")
    client.create_bucket(Bucket=bucket)
    return f"s3://{bucket}/difficulty?endpoint_override={s3_endpoint}&scheme=http&region=us-east-1"


@pytest.fixture(params=["local", "memory", "s3"])
def artifacts(request: pytest.FixtureRequest, tmp_path: Path) -> Artifacts:
    if request.param == "local":
        return open_artifacts(str(tmp_path / "artifacts"))
    if request.param == "s3":
        return open_artifacts(request.getfixturevalue("s3_root"))
    MemoryFileSystem.store.clear()
    return open_artifacts("memory://results")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "made-here"
    path.write_bytes(bytes(range(256)) * 40)
    return path


def test_a_file_comes_back_as_it_was_put(artifacts: Artifacts, file: Path) -> None:
    artifacts.put(file, "jobs/one/a1/scores.parquet")

    with artifacts.open("jobs/one/a1/scores.parquet") as stored:
        assert stored.read() == file.read_bytes()
    assert artifacts.size("jobs/one/a1/scores.parquet") == 10_240


def test_a_file_can_be_read_from_anywhere_in_it(artifacts: Artifacts, file: Path) -> None:
    artifacts.put(file, "jobs/one/a1/scores.parquet")

    with artifacts.open("jobs/one/a1/scores.parquet") as stored:
        stored.seek(10_000)
        found = stored.read(7)

    assert found == file.read_bytes()[10_000:10_007]


def test_a_missing_file_has_no_size_and_cannot_be_opened(artifacts: Artifacts, file: Path) -> None:
    artifacts.put(file, "jobs/one/a1/scores.parquet")

    for key in ("jobs/one/a2/scores.parquet", "jobs/one/a1"):
        assert artifacts.size(key) is None
    with pytest.raises(FileNotFoundError):
        artifacts.open("jobs/one/a2/scores.parquet")


def test_the_folders_in_a_folder_are_listed_without_its_neighbours(
    artifacts: Artifacts, file: Path
) -> None:
    for key in ("jobs/one/a1/scores", "jobs/one/a2/errors", "jobs/one-more/a1/scores"):
        artifacts.put(file, key)

    assert artifacts.list_folders("jobs/one") == ["jobs/one/a1", "jobs/one/a2"]
    assert artifacts.list_folders("jobs/none") == []


def test_deleting_a_folder_leaves_its_neighbours(artifacts: Artifacts, file: Path) -> None:
    for key in ("jobs/one/a1/scores", "jobs/one/a2/scores", "jobs/one-more/a1/scores"):
        artifacts.put(file, key)

    artifacts.delete_prefix("jobs/one")

    assert keys_below(artifacts, "jobs") == ["jobs/one-more/a1/scores"]


def test_deleting_a_missing_folder_is_no_error(artifacts: Artifacts) -> None:
    artifacts.delete_prefix("jobs/none")

    assert keys_below(artifacts, "jobs") == []


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../outside", "jobs/../../outside", "jobs//one", "jobs/.", "a\0b"]
)
def test_a_key_that_leads_anywhere_else_is_refused(artifacts: Artifacts, key: str) -> None:
    with pytest.raises(ValueError, match="not the key"):
        artifacts.open(key)


def test_a_local_file_that_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    artifacts = open_artifacts(str(tmp_path / "artifacts"))

    with pytest.raises(FileNotFoundError):
        artifacts.put(tmp_path / "missing", "jobs/one/a1/scores.parquet")

    assert [path for path in (tmp_path / "artifacts").rglob("*") if path.is_file()] == []
