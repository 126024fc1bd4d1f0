"""Folders and archives of small images, and an S3 server on this computer."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.dataset_files import IMAGES, Pack, write_tar, write_zip

PutObjects = Callable[[dict[str, bytes]], str]


@pytest.fixture
def class_folders(tmp_path: Path) -> Path:
    """Two classes, `cat` with a sub-folder, in a folder called `photos`."""
    root = tmp_path / "photos"
    for number, name in enumerate(["dog/b.png", "dog/a.JPG", "cat/2.png", "cat/old/1.png"]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(IMAGES[number])
    return root


@pytest.fixture(scope="session")
def s3_endpoint() -> Iterator[str]:
    """The address of an S3-compatible server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def put_objects(
    s3_endpoint: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> PutObjects:
    """Uploads objects to a new bucket and returns its URI; configured by environment variables."""
    import boto3

    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    client = boto3.client("s3", region_name="us-east-1")
    bucket = f"bucket-{abs(hash(request.node.nodeid))}"
    client.create_bucket(Bucket=bucket)

    def put(objects: dict[str, bytes]) -> str:
        for key, body in objects.items():
            client.put_object(Bucket=bucket, Key=key, Body=body)
        return f"s3://{bucket}"

    return put


@pytest.fixture(params=["photos.tar", "photos.zip"])
def pack(request: pytest.FixtureRequest, tmp_path: Path) -> Pack:
    """Writes members into a tar or a zip."""
    write = write_zip if request.param.endswith("zip") else write_tar
    return lambda members: write(tmp_path / request.param, members)
