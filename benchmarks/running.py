"""Services that the benchmarks start, and the core time that they take."""

import json
import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httpx2

from api.storage.database import connect
from api.storage.keys import create_key
from benchmarks.attackers import Target
from benchmarks.photographs import write_photographs

NUM_PHOTOGRAPHS = 200


@dataclass(frozen=True)
class Service:
    """A running server with a finished job, and one that no worker takes."""

    process: int
    url: str
    database: str
    folder: Path
    target: Target

    def new_key(self) -> str:
        """Secret of a new key that may read and change the jobs of all."""
        return new_key(self.database)

    def peak_memory(self) -> int:
        """Most memory that the process has had, in MiB."""
        status = Path(f"/proc/{self.process}/status").read_text()
        return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10

    def descriptors(self) -> int:
        """Number of open descriptors of the process."""
        return len(list(Path(f"/proc/{self.process}/fd").iterdir()))


@contextmanager
def running_service(folder: Path, descriptors: int | None = None) -> Iterator[Service]:
    """A server with its default limits, and what the attacks need there."""
    photographs = write_photographs(folder / "photos", NUM_PHOTOGRAPHS)
    values = {
        "ROOTS": json.dumps({"photos": str(folder / "photos")}),
        "DATA_DIR": str(folder / "data"),
        "DATABASE_URL": f"sqlite:///{folder / 'difficulty.sqlite'}",
    }
    environment = os.environ | {f"DIFFICULTY_{name}": value for name, value in values.items()}
    command = [sys.executable, "-m", "difficulty_service"]
    log = folder / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "serve", "--port", "0"], env=environment, stderr=file
        )
    if descriptors is not None:
        resource.prlimit(server.pid, resource.RLIMIT_NOFILE, (descriptors, descriptors))
    try:
        url = listening_url(server, log)
        worker = subprocess.Popen(  # noqa: S603 - our own command
            [*command, "worker"], env=environment, stderr=subprocess.DEVNULL
        )
        try:
            key = new_key(values["DATABASE_URL"])
            job, images = finished_job(url, key)
        finally:
            worker.terminate()
            worker.wait()
        parts = urlsplit(url)
        target = Target(
            address=(str(parts.hostname), int(parts.port or 0)),
            key=key,
            job=job,
            waiting_job=submit(url, key),
            images=images,
            photographs=tuple(photographs[:8]),
        )
        yield Service(server.pid, url, values["DATABASE_URL"], folder, target)
    finally:
        server.terminate()
        server.wait()


def listening_url(server: "subprocess.Popen[bytes]", log: Path) -> str:
    """Where the server listens, as it says in its log."""
    while not (found := re.search(r'"url": "([^"]+)"', log.read_text())):
        if server.poll() is not None:
            sys.exit(f"the server ended: {log.read_text()}")
        time.sleep(0.1)
    return found[1]


def core_seconds(process: int) -> float:
    """Core time of a process so far, in steps of 10 ms."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def core_seconds_of_all(process: int) -> float:
    """Core time of a process and of those that it has started."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    children = " ".join(each.read_text() for each in lists).split()
    return core_seconds(process) + sum(core_seconds_of_all(int(child)) for child in children)


@dataclass(frozen=True)
class Pace:
    """Images per second, and milliseconds of a core for each."""

    rate: float
    core_ms: float


def pace(work: Sequence[Callable[[], None]], images: int, server: int) -> Pace:
    """How fast some threads work at the same time, and what it costs with and in the server."""
    before = time.process_time() + core_seconds_of_all(server)
    began = time.perf_counter()
    with ThreadPoolExecutor(len(work)) as pool:
        for future in [pool.submit(each) for each in work]:
            future.result()
    seconds = time.perf_counter() - began
    cost = time.process_time() + core_seconds_of_all(server) - before
    return Pace(images / seconds, 1000 * cost / images)


def new_key(database: str, scope: str = "admin") -> str:
    """Secret of a new key, by default of one that may read and change the jobs of all."""
    engine = connect(database)
    try:
        return create_key(engine, "of the benchmark", [scope])[1]
    finally:
        engine.dispose()


def client_of(url: str, key: str) -> httpx2.Client:
    """A client with a key."""
    return httpx2.Client(base_url=url, headers={"X-API-Key": key}, timeout=300)


def submit(url: str, key: str) -> str:
    """Has the photographs scored; gives the job's id."""
    body = {
        "dataset": {"root": "photos"},
        "backbone": "builtin",
        "scorers": ["rmd"],
        "shrinkage": "ledoit-wolf",
    }
    with client_of(url, key) as client:
        return str(client.post("/v1/jobs", json=body).raise_for_status().json()["id"])


def finished_job(url: str, key: str) -> tuple[str, tuple[str, ...]]:
    """Id of a job that a worker has scored, and the ids of its images."""
    job = submit(url, key)
    with client_of(url, key) as client:
        client.get(f"/v1/jobs/{job}/events")  # until it has ended
        page = client.get(f"/v1/jobs/{job}/scores", params={"limit": NUM_PHOTOGRAPHS})
        rows = page.raise_for_status().json()["samples"]
    return job, tuple(str(row["sample_id"]) for row in rows)
