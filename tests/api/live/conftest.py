"""The service as its users run it: processes of the real commands, called over HTTP."""

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.api.live.running import (
    ForkCommand,
    Service,
    StartService,
    Tenants,
    running_service,
    starting,
)
from tests.factories import write_image_folder
from tests.small_network import SMALL

CLASSES = ("bird", "cat", "dog")
EACH = 8
MANY = 3000
BODY_LIMIT = 1 << 20
LIMITS = {
    "max_connections": 24,
    "max_connections_per_address": 12,
    "max_header_bytes": 16384,
    "header_timeout": 1,
    "body_timeout": 1,
    "answer_timeout": 1,
    "min_rate": 2000,
}
SECRET = b"the contents of a file outside of every root"


@pytest.fixture(scope="session")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `train`, a folder per class, one image of which is damaged."""
    folder = tmp_path_factory.mktemp("photos")
    write_image_folder(folder / "train", CLASSES, EACH, seed=5)
    (folder / "train" / CLASSES[0] / "damaged.png").write_bytes(b"\x89PNG\r\n\x1a\nnothing more")
    return folder


@pytest.fixture(scope="session")
def many_photos(photos: Path) -> Path:
    """A folder beside `train` that takes seconds to score."""
    folder = photos / "many" / CLASSES[0]
    folder.mkdir(parents=True)
    for number in range(MANY):
        (folder / f"{number}.png").hardlink_to(photos / "train" / CLASSES[0] / "0.png")
    return folder.parent


@pytest.fixture
def start_service(
    fork_command: ForkCommand, tmp_path: Path, photos: Path
) -> Iterator[StartService]:
    """Starts a server and a worker on a database; ends them after the test."""
    with starting(fork_command, tmp_path, {"photos": photos}) as start:
        yield start


@pytest.fixture(scope="module")
def start_for_all(
    fork_command: ForkCommand, tmp_path_factory: pytest.TempPathFactory, photos: Path
) -> Iterator[StartService]:
    """Starts a server and a worker on a database; ends them after the tests of a file."""
    with starting(fork_command, tmp_path_factory.mktemp("service"), {"photos": photos}) as start:
        yield start


@pytest.fixture(scope="session")
def shared_service(
    fork_command: ForkCommand, tmp_path_factory: pytest.TempPathFactory, photos: Path
) -> Iterator[Service]:
    """One service with SQLite for all tests that leave it unchanged."""
    folder = tmp_path_factory.mktemp("service")
    settings = {"database_url": f"sqlite:///{folder / 'difficulty.sqlite'}"}
    with running_service(fork_command, folder, {"photos": photos}, settings) as service:
        yield service


@pytest.fixture(scope="session")
def guarded(
    fork_command: ForkCommand, tmp_path_factory: pytest.TempPathFactory, photos: Path
) -> Iterator[Service]:
    """A service with low limits of connections and times."""
    folder = tmp_path_factory.mktemp("guarded")
    settings = LIMITS | {"database_url": f"sqlite:///{folder / 'difficulty.sqlite'}"}
    with running_service(fork_command, folder, {"photos": photos}, settings) as service:
        yield service


@pytest.fixture
def connect(guarded: Service) -> Iterator[Callable[..., socket.socket]]:
    """Opens connections to it, from another address of this machine if wanted; closes them."""
    parts = urlsplit(guarded.url)
    with ExitStack() as stack:

        def opened(source: int = 1) -> socket.socket:
            address = (str(parts.hostname), parts.port or 80)
            made = socket.create_connection(address, 20, (f"127.0.0.{source}", 0))
            return stack.enter_context(made)

        yield opened


@pytest.fixture(scope="session")
def secret(photos: Path) -> bytes:
    """Content of files outside of the root, to which links inside it lead."""
    outside = photos.parent / "outside"
    outside.mkdir()
    for place in (outside / "secret.png", photos.parent / "secret.png"):
        place.write_bytes(SECRET)
    for link, target in (("way-out", outside), ("secret-link.png", outside / "secret.png")):
        (photos / link).symlink_to(target)
    return SECRET


@pytest.fixture(scope="module")
def service(
    fork_command: ForkCommand,
    tmp_path_factory: pytest.TempPathFactory,
    photos: Path,
    secret: bytes,  # noqa: ARG001 - its files exist
) -> Iterator[Service]:
    """A service with low limits, beside files that it must not read."""
    folder = tmp_path_factory.mktemp("service")
    settings = {
        "database_url": f"sqlite:///{folder / 'difficulty.sqlite'}",
        "max_body_bytes": BODY_LIMIT,
        "max_upload_bytes": 10 * BODY_LIMIT,
    }
    with running_service(fork_command, folder, {"photos": photos}, settings) as service:
        yield service


@pytest.fixture
def tenants(service: Service) -> Tenants:
    """Two new keys of that service, the second one with a finished job."""
    mine, theirs = service.new_key("mine"), service.new_key("theirs")
    with service.client(theirs) as client:
        body = {"dataset": {"root": "photos", "path": "train"}, "backbone": SMALL}
        job = client.post("/v1/jobs", json=body | {"shrinkage": 0.5}).json()
        client.get(job["links"]["events"])  # until it has ended
        upload = client.post("/v1/uploads", json={"format": "zip", "size": 100}).json()
    return Tenants(mine, theirs, job["id"], upload["id"])
