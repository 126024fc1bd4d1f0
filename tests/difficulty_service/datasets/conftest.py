"""Small real images, archives of them, and an S3 server on this computer."""

import io
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from difficulty_service.base.errors import ImageError
from difficulty_service.datasets.sample import Dataset
from tests.factories import png_of

Members = list[tuple[str, bytes]]
PutObjects = Callable[[dict[str, bytes]], str]


@pytest.fixture(scope="session")
def images() -> list[bytes]:
    """Twelve different PNG files."""
    return [png_of((20 * number, 10, 200), (8, 6)) for number in range(12)]


@pytest.fixture
def class_folders(tmp_path: Path, images: list[bytes]) -> Path:
    """Two classes, `cat` with a sub-folder, in a folder called `photos`."""
    root = tmp_path / "photos"
    for number, name in enumerate(["dog/b.png", "dog/a.JPG", "cat/2.png", "cat/old/1.png"]):
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(images[number])
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


@pytest.fixture(scope="session")
def photos() -> Callable[..., Members]:
    """Names four images as members of an archive, in two class folders."""
    names = ["dog/b.png", "cat/2.png", "dog/a.JPG", "cat/old/1.png"]

    def name(images: list[bytes], prefix: str = "") -> Members:
        return [(prefix + name, image) for name, image in zip(names, images, strict=False)]

    return name


@pytest.fixture(scope="session")
def write_tar() -> Callable[..., str]:
    """Writes members into a tar; returns its path."""

    def write(path: Path, members: Members, mode: str = "w") -> str:
        with tarfile.open(path, mode) as tar:  # type: ignore[call-overload]
            for name, data in members:
                header = tarfile.TarInfo(name)
                header.size = len(data)
                tar.addfile(header, io.BytesIO(data))
        return str(path)

    return write


@pytest.fixture(scope="session")
def write_zip() -> Callable[..., str]:
    """Writes members into a zip; returns its path."""

    def write(path: Path, members: Members, method: int = zipfile.ZIP_DEFLATED) -> str:
        with zipfile.ZipFile(path, "w", method) as opened:
            for name, data in members:
                opened.writestr(zipfile.ZipInfo(name), data, method)
        return str(path)

    return write


@pytest.fixture(params=["photos.tar", "photos.zip"])
def pack(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    write_tar: Callable[..., str],
    write_zip: Callable[..., str],
) -> Callable[[Members], str]:
    """Writes members into a tar or a zip."""
    write = write_zip if request.param.endswith("zip") else write_tar
    return lambda members: write(tmp_path / request.param, members)


@pytest.fixture(scope="session")
def read_samples() -> Callable[[Dataset], dict[str, bytes | str]]:
    """Reads the content of each sample, or the reason why it cannot be read."""

    def read(dataset: Dataset) -> dict[str, bytes | str]:
        contents: dict[str, bytes | str] = {}
        for shard in range(dataset.num_shards):
            for sample in dataset.read_shard(shard):
                try:
                    with sample.open() as file:
                        contents[sample.sample_id] = file.read()
                except ImageError as error:
                    contents[sample.sample_id] = str(error)
        return contents

    return read
