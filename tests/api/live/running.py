"""Processes of the real commands, as users run them, and what tests ask of them."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import httpx2

from api.storage.database import connect as connect_database
from api.storage.keys import create_key, list_keys, revoke_key
from tests.service import listening_url

TIMEOUT = 120.0


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


@contextmanager
def running_service(
    fork_command: ForkCommand, folder: Path, roots: dict[str, Path], settings: Mapping[str, object]
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
