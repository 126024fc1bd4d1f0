"""How long nine keys wait for their jobs beside a tenth that takes all it can, and without it.

Run: python -m benchmarks.ten_keys [--rounds 3] [--jobs 1000]

The tenth key has a thousand queued jobs, all the event streams and all the bytes that a key may
have, and asks for its jobs as fast as it is answered. Each of the others has one small job at a
time, from its submission to its scores, and a list of its jobs in between. A server and a worker
run as `difficulty serve` and `difficulty worker` start them, with the limits of a key as they are
by default but for the queued jobs and the bytes.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path

import httpx2

from benchmarks.machine import machine
from benchmarks.photographs import write_photographs
from benchmarks.running import client_of, listening_url, new_key

PHOTOGRAPHS = 60
OTHERS = 9
STREAMS = 20
STORED_BYTES = 128 << 20
BODY = {
    "dataset": {"root": "photos"},
    "backbone": "builtin",
    "scorers": ["rmd"],
    "shrinkage": "ledoit-wolf",
}


@dataclass(frozen=True)
class Waits:
    """Seconds that a key waited, for the scores of each job and for each list of its jobs."""

    jobs: list[float]
    lists: list[float]


@dataclass(frozen=True)
class Running:
    """A server with a worker: its address, its database, and their processes."""

    url: str
    database: str
    data: Path
    server: int
    worker: int


@contextmanager
def service(folder: Path, queued: int, stored: int = STORED_BYTES) -> Iterator[Running]:
    """A server with a worker, where a key may have so many queued jobs and bytes."""
    write_photographs(folder / "photos", PHOTOGRAPHS)
    database = f"sqlite:///{folder / 'difficulty.sqlite'}"
    values = {
        "ROOTS": json.dumps({"photos": str(folder / "photos")}),
        "DATA_DIR": str(folder / "data"),
        "DATABASE_URL": database,
        "MAX_QUEUED_JOBS": str(queued),
        "MAX_STORED_BYTES": str(stored),
    }
    environment = os.environ | {f"DIFFICULTY_{name}": value for name, value in values.items()}
    command = [sys.executable, "-m", "difficulty_service"]
    log = folder / "server.log"
    with ExitStack() as stack:
        server = stack.enter_context(
            subprocess.Popen(  # noqa: S603 - our own command
                [*command, "serve", "--port", "0"],
                env=environment,
                stderr=stack.enter_context(log.open("wb")),
            )
        )
        stack.callback(server.terminate)
        url = listening_url(server, log)
        worker = stack.enter_context(
            subprocess.Popen(  # noqa: S603 - our own command
                [*command, "worker"], env=environment, stderr=subprocess.DEVNULL
            )
        )
        stack.callback(worker.terminate)
        yield Running(url, database, folder / "data", server.pid, worker.pid)


def patiently(client: httpx2.Client, method: str, path: str, **body: object) -> httpx2.Response:
    """A request that waits where the rate of its key is reached."""
    while (answer := client.request(method, path, **body)).status_code == (  # type: ignore[arg-type]
        HTTPStatus.TOO_MANY_REQUESTS
    ):
        time.sleep(float(answer.headers.get("Retry-After", 1)))
    if answer.is_error:
        sys.exit(f"{method} {path}: {answer.text}")
    return answer


def use(url: str, key: str, rounds: int) -> Waits:
    """Has jobs scored, one after the other."""
    waits = Waits([], [])
    with client_of(url, key) as client:
        for _ in range(rounds):
            began = time.perf_counter()
            job = client.post("/v1/jobs", json=BODY).raise_for_status().json()["id"]
            client.get(f"/v1/jobs/{job}/events")  # until it has ended
            client.get(f"/v1/jobs/{job}/scores").raise_for_status()
            waits.jobs.append(time.perf_counter() - began)
            began = time.perf_counter()
            client.get("/v1/jobs").raise_for_status()
            waits.lists.append(time.perf_counter() - began)
    return waits


def use_together(url: str, keys: list[str], rounds: int) -> tuple[Waits, float]:
    """What all keys waited, at the same time, and how long it took."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(keys)) as pool:
        found = list(pool.map(lambda key: use(url, key, rounds), keys))
    waits = Waits([], [])
    for each in found:
        waits.jobs.extend(each.jobs)
        waits.lists.extend(each.lists)
    return waits, time.perf_counter() - began


@contextmanager
def greedy(url: str, key: str, jobs: int, worker: int) -> Iterator[None]:
    """A key takes what it can: jobs, bytes, streams and answers."""
    done = threading.Event()
    os.kill(worker, signal.SIGSTOP)  # it would end jobs as fast as a key may submit them
    with client_of(url, key) as client, ExitStack() as stack:
        ids = [patiently(client, "POST", "/v1/jobs", json=BODY).json()["id"] for _ in range(jobs)]
        kept = patiently(client, "GET", "/v1/usage").raise_for_status().json()
        size = STORED_BYTES - kept["total_bytes"]
        upload = patiently(client, "POST", "/v1/uploads", json={"format": "tar", "size": size})
        address = upload.raise_for_status().headers["Location"]
        patiently(client, "PUT", address, content=bytes(size - 1)).raise_for_status()
        for each in ids[-STREAMS:]:
            stack.enter_context(client.stream("GET", f"/v1/jobs/{each}/events"))

        def ask() -> None:
            while not done.is_set():
                patiently(client, "GET", "/v1/jobs")

        asking = threading.Thread(target=ask)
        asking.start()
        os.kill(worker, signal.SIGCONT)
        try:
            yield
        finally:
            done.set()
            asking.join()


def main() -> None:
    """Prints what the nine keys waited alone and beside the tenth, and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1000)
    options = parser.parse_args()
    print(machine())
    with (
        tempfile.TemporaryDirectory() as name,
        service(Path(name), options.jobs) as running,
    ):
        url, database = running.url, running.database
        keys = [new_key(database, "write") for _ in range(OTHERS)]
        use_together(url, keys, 1)  # what a first job loads
        found = {"alone": use_together(url, keys, options.rounds)}
        with greedy(url, new_key(database, "write"), options.jobs, running.worker):
            found["beside the tenth"] = use_together(url, keys, options.rounds)
    for name, (waits, seconds) in found.items():
        print(
            f"{name}: {seconds:.1f} s in all; a job {statistics.median(waits.jobs):.2f} s, at most "
            f"{max(waits.jobs):.2f}; a list {1000 * statistics.median(waits.lists):.0f} ms, at "
            f"most {1000 * max(waits.lists):.0f}"
        )
    alone, beside = found.values()
    of_a_job = statistics.median(beside[0].jobs) / statistics.median(alone[0].jobs)
    print(f"ratio: {beside[1] / alone[1]:.2f} in all, {of_a_job:.2f} for a job")


if __name__ == "__main__":
    main()
