"""The service as its users run it: processes of the real commands, called over HTTP."""

import json
import os
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from api.storage.database import connect as connect_database
from api.storage.keys import create_key, list_keys, revoke_key
from tests.factories import write_image_folder
from tests.service import listening_url
from tests.small_network import SMALL

CLASSES = ("bird", "cat", "dog")
EACH = 8
MANY = 3000
TIMEOUT = 120.0
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


@dataclass(frozen=True)
class Service:
    """A running server and its worker."""

    url: str  # address that it listens on
    roots: dict[str, Path]  # folders that jobs may read, by name
    environment: dict[str, str]  # environment variables of its processes
    processes: tuple[int, int]  # process ids of the server and the worker

    def client(self, secret: str | None = None) -> httpx2.Client:
        """A client of it, with a key or without."""
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        return httpx2.Client(base_url=self.url, headers=headers, timeout=TIMEOUT)

    def peak_memories(self) -> list[int]:
        """Peak memory of each process, in bytes."""
        statuses = [Path(f"/proc/{process}/status").read_text() for process in self.processes]
        peaks = [re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE) for status in statuses]
        return [int(peak) << 10 for (peak,) in peaks]

    def growth_since(self, before: list[int]) -> int:
        """Largest increase of the peak memory of a process, in bytes."""
        return max(now - then for now, then in zip(self.peak_memories(), before, strict=True))

    def new_key(self, name: str, scopes: str = "write") -> str:
        """The secret of a new key."""
        engine = connect_database(self.environment["DIFFICULTY_DATABASE_URL"])
        _, secret = create_key(engine, name, scopes.split(","))
        engine.dispose()
        return secret

    def revoke_key(self, name: str) -> None:
        """Revokes the keys of a name."""
        engine = connect_database(self.environment["DIFFICULTY_DATABASE_URL"])
        for key in list_keys(engine):
            if key.name == name:
                revoke_key(engine, key.id)
        engine.dispose()


@dataclass(frozen=True)
class Tenants:
    """Two keys and data of the second one."""

    mine: str  # secret of the first key
    theirs: str  # secret of the second key
    their_job: str  # identifier of a finished job
    their_upload: str  # identifier of an upload without content

    def are_intact(self, service: Service) -> bool:
        """Whether the data of the owner is complete, and the list of the other key empty."""
        with service.client(self.theirs) as client:
            job = client.get(f"/v1/jobs/{self.their_job}")
            upload = client.get(f"/v1/uploads/{self.their_upload}").json()
        with service.client(self.mine) as client:
            jobs = client.get("/v1/jobs").json()["jobs"]
        return job.json()["state"] == "succeeded" and upload["received"] == 0 and jobs == []


StartService = Callable[..., Service]
ForkCommand = Callable[..., ForkServerProcess]


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


@contextmanager
def starting(
    fork_command: ForkCommand, folder: Path, roots: dict[str, Path]
) -> Iterator[StartService]:
    """Starts servers, each with a worker, on databases; ends all with the context."""
    with ExitStack() as stack:

        def start(database_url: str, *, forks: bool = True, **settings: object) -> Service:
            settings |= {"database_url": database_url}
            start_command = partial(fork_command, forks=forks)
            service = running_service(start_command, folder, roots, settings)
            return stack.enter_context(service)

        yield start


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


@contextmanager
def running_service(
    fork_command: ForkCommand,
    folder: Path,
    roots: dict[str, Path],
    settings: Mapping[str, object],
) -> Iterator[Service]:
    """`difficulty serve` and `difficulty worker` with a folder of their own."""
    variables = {
        "roots": json.dumps({name: str(path) for name, path in roots.items()}),
        "data_dir": folder / "data",
        "device": "cpu",
        "default_backbone": "builtin",  # the usual one is looked for on the hub
        "poll": 0.2,  # not more often, since it is idle for most of the run
        "heartbeat": 1,
        "rate_limit": "100000/minute",
        "log_level": "warning",
    } | settings
    # Without the variables of tests, which are no settings.
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("DIFFICULTY_")
    }
    environment = {
        **inherited,
        "OMP_NUM_THREADS": "1",
        **{f"DIFFICULTY_{name.upper()}": str(value) for name, value in variables.items()},
    }
    # The port is read from the log, the first thing of level "info" that is of use here.
    environment_of_server = environment | {"DIFFICULTY_LOG_LEVEL": "info"}
    log, worker_log = folder / "server.log", folder / "worker.log"
    processes = [fork_command("serve", "--port", 0, environment=environment_of_server, errors=log)]
    try:
        url = listening_url(processes[0], log)
        processes.append(fork_command("worker", environment=environment, errors=worker_log))
        wait_until_ready(url, processes[1])
        yield Service(url, roots, environment, (processes[0].pid, processes[1].pid))
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.join(60)
    assert [process.exitcode for process in processes] == [0, 0], (
        log.read_text() + worker_log.read_text()
    )


def wait_until_ready(url: str, worker: ForkServerProcess) -> None:
    """Returns after the first heartbeat of the worker."""
    while httpx2.get(f"{url}/readyz", timeout=TIMEOUT).status_code != httpx2.codes.OK:
        assert worker.is_alive(), "the worker ended"
        time.sleep(0.1)
