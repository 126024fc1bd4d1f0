"""Eight clients that score images over HTTP, beside the same work without HTTP, and /healthz.

Run: python -m benchmarks.service [--rounds 9] [--requests 12] [--images 16]

A server and a worker run as processes of their own, as `difficulty serve` and `difficulty worker`
start them. Eight clients send photographs of 500 x 400 pixels as JPEG, some at a time, again and
again. Threads of this process decode, encode and score the same photographs with the same
functions, in turns with the clients, so that both see the same machine: as many threads as there
are cores, and as many as there are clients. The ratio is to whichever was faster in its round.
Torch runs on one thread in both, which is faster on two cores than two threads that wait for each
other. Where other programs keep the machine busy, more processes get a larger share of it, which
favours the service; the ratio of the core times holds there, too: it is what the ratio of the rates
comes to on cores that do nothing else. /healthz is asked while a job runs, and in a round of its
own beside the clients.
"""

import argparse
import http.client
import io
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import numpy as np
import torch

from api.jobs.store import get_job
from api.online.encoder import BackbonePool
from api.online.scorer import LoadedModels, ScoringModel
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import connect
from benchmarks.machine import machine
from benchmarks.photographs import write_photographs
from benchmarks.running import Pace, listening_url, pace
from difficulty_service.base.process_setup import keep_freed_memory
from difficulty_service.base.threads import num_workers

CLIENTS = 8
TORCH_THREADS = 1
NUM_PHOTOGRAPHS = 640
LEAST_RATIO, MOST_MILLISECONDS = 0.85, 100.0
ASK_EVERY = 0.01  # seconds
BOUNDARY = "boundary-of-the-benchmark"


@dataclass(frozen=True)
class Server:
    """A running service with a finished job."""

    process: int
    url: str
    job_id: str
    settings: Settings


@dataclass
class Asking:
    """Asks /healthz until it is told to stop; milliseconds of each answer."""

    url: str
    milliseconds: list[float] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def while_inside(self) -> Iterator[None]:
        """Asks in a thread of its own."""
        thread = threading.Thread(target=self._ask)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _ask(self) -> None:
        with closing(connection_to(self.url)) as connection:
            while not self._stop.wait(ASK_EVERY):
                began = time.perf_counter()
                connection.request("GET", "/healthz")
                connection.getresponse().read()
                self.milliseconds.append(1000 * (time.perf_counter() - began))


def connection_to(url: str) -> http.client.HTTPConnection:
    """A connection that is kept; the cheapest client there is."""
    parts = urlsplit(url)
    return http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=120)


@contextmanager
def running_service(folder: Path) -> Iterator[Server]:
    """A server, a worker and a job that they have scored."""
    values = {
        "ROOTS": json.dumps({"photos": str(folder / "photos")}),
        "DATA_DIR": str(folder / "data"),
        "RATE_LIMIT": "100000000/minute",
        "LOG_LEVEL": "info",
        "MAX_BODY_BYTES": str(64 << 20),
    }
    os.environ.update({f"DIFFICULTY_{name}": value for name, value in values.items()})
    os.environ["OMP_NUM_THREADS"] = str(TORCH_THREADS)  # of server and worker
    command = [sys.executable, "-m", "difficulty_service"]
    log = folder / "server.log"
    with log.open("wb") as file:
        server = subprocess.Popen([*command, "serve", "--port", "0"], stderr=file)  # noqa: S603
    worker = subprocess.Popen([*command, "worker"], stderr=subprocess.DEVNULL)  # noqa: S603
    try:
        url = listening_url(server, log)
        with httpx2.Client(base_url=url, timeout=600) as client:
            job_id = submit(client)
            client.get(f"/v1/jobs/{job_id}/events")  # until it has ended
            state = client.get(f"/v1/jobs/{job_id}").json()
        if state["state"] != "succeeded":
            sys.exit(f"the job did not succeed: {state}")
        yield Server(server.pid, url, job_id, Settings())
    finally:
        for process in (worker, server):
            process.terminate()
        for process in (worker, server):
            process.wait()


def submit(client: httpx2.Client, augment_runs: int = 0) -> str:
    """Has the photographs scored; gives the job's id."""
    request = {
        "dataset": {"root": "photos"},
        "backbone": "builtin",
        "shrinkage": "ledoit-wolf",
        "augment_runs": augment_runs,
    }
    return str(client.post("/v1/jobs", json=request).raise_for_status().json()["id"])


def multipart(images: Sequence[bytes]) -> bytes:
    """A form with some files, as a client sends it."""
    head = (
        f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="images"; filename="a.jpg"\r\n'
        "Content-Type: image/jpeg\r\n\r\n"
    ).encode()
    return b"".join(head + image + b"\r\n" for image in images) + f"--{BOUNDARY}--\r\n".encode()


def over_http(server: Server, batches: Sequence[Sequence[bytes]]) -> Callable[[], None]:
    """Sends every batch once; bodies are made before."""
    bodies = [multipart(batch) for batch in batches]
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}

    def run() -> None:
        with closing(connection_to(server.url)) as connection:
            for body in bodies:
                connection.request("POST", f"/v1/gaussians/{server.job_id}/score", body, headers)
                answer = connection.getresponse()
                content = answer.read()
                if answer.status != http.client.OK:
                    sys.exit(f"{answer.status}: {content[:500]!r}")

    return run


def without_http(
    networks: BackbonePool, model: ScoringModel, batches: Sequence[Sequence[bytes]]
) -> Callable[[], None]:
    """Decodes, encodes and scores every batch once, by the functions that the service calls."""

    def run() -> None:
        for batch in batches:
            openers = [partial(io.BytesIO, image) for image in batch]
            features = [
                each
                for each in networks.encode(openers, model.description)
                if not isinstance(each, str)
            ]
            scores = model.score(torch.stack(features), torch.full((len(features),), -1))
            scores.rows(model.description.class_names)

    return run


def quantiles(milliseconds: Sequence[float]) -> str:
    """Median, 99th percentile and maximum."""
    p50, p99 = np.percentile(milliseconds, [50, 99])
    return f"{p50:.1f} ms | {p99:.1f} ms | {max(milliseconds):.0f} ms"


def row(name: str, rounds: Sequence[Pace]) -> str:
    """Medians of some rounds, as a row of the table."""
    rate = statistics.median(each.rate for each in rounds)
    return f"| {name} | {rate:.0f} | {statistics.median(each.core_ms for each in rounds):.2f} ms |"


def spread(ratios: Sequence[float]) -> str:
    """Median and range."""
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def health_while_a_job_runs(server: Server) -> list[float]:
    """Milliseconds of /healthz while a worker extracts features."""
    asking = Asking(server.url)
    with httpx2.Client(base_url=server.url, timeout=600) as client, asking.while_inside():
        job_id = submit(client, augment_runs=4)
        client.get(f"/v1/jobs/{job_id}/events")
    return asking.milliseconds


def main() -> None:
    """Measures in rounds, prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--requests", type=int, default=12, help="of each client in a round")
    parser.add_argument("--images", type=int, default=16, help="of a request")
    arguments = parser.parse_args()
    keep_freed_memory()  # as the service's processes do
    torch.set_num_threads(TORCH_THREADS)
    with tempfile.TemporaryDirectory() as folder:
        photographs = write_photographs(Path(folder) / "photos", NUM_PHOTOGRAPHS)
        with running_service(Path(folder)) as server:
            measure(server, photographs, arguments)


def measure(server: Server, photographs: list[bytes], arguments: argparse.Namespace) -> None:
    """Rounds with and without HTTP, then /healthz beside a job."""
    total = CLIENTS * arguments.requests * arguments.images
    chosen = [photographs[number % len(photographs)] for number in range(total)]
    size = arguments.images
    requests = [chosen[start : start + size] for start in range(0, total, size)]
    clients = [over_http(server, requests[client::CLIENTS]) for client in range(CLIENTS)]

    artifacts = open_artifacts(server.settings.artifact_root)
    engine = connect(server.settings.resolved_database_url.get_secret_value())
    job = get_job(engine, "", server.job_id)
    if job is None:
        sys.exit("the job is gone")
    model = LoadedModels(artifacts, server.settings.data_dir / "benchmark").get(job)
    networks = BackbonePool(server.settings.machine.model_copy(update={"device": "cpu"}))
    plain = {
        threads: [without_http(networks, model, requests[each::threads]) for each in range(threads)]
        for threads in (num_workers(), CLIENTS)
    }
    for work in (*plain.values(), clients):  # all are warm afterwards
        pace(work, total, server.process)
    floors, over = [], []
    for _ in range(arguments.rounds):
        floors.append([pace(work, total, server.process) for work in plain.values()])
        over.append(pace(clients, total, server.process))
    networks.close()
    engine.dispose()
    asking = Asking(server.url)
    with asking.while_inside():
        pace(clients, total, server.process)
    beside_job = health_while_a_job_runs(server)

    ratios = [
        one.rate / max(each.rate for each in all_) for one, all_ in zip(over, floors, strict=True)
    ]
    costs = [
        min(each.core_ms for each in all_) / one.core_ms
        for one, all_ in zip(over, floors, strict=True)
    ]
    print(machine(), f"{os.getloadavg()[0]:.1f} processes at work")
    print(f"{CLIENTS} clients, {size} photographs a request, {arguments.rounds} rounds\n")
    print("| | images per second | core time of an image |\n| --- | --- | --- |")
    print(row("over HTTP", over))
    for threads, column in zip(plain, zip(*floors, strict=True), strict=True):
        print(row(f"without HTTP, {threads} threads", column))
    print(f"| ratio of HTTP to the better of these | {spread(ratios)} | {spread(costs)} |\n")
    print("| `/healthz` | p50 | p99 | longest |\n| --- | --- | --- | --- |")
    print(f"| beside the clients | {quantiles(asking.milliseconds)} |")
    print(f"| beside a job | {quantiles(beside_job)} |")
    ratio = min(statistics.median(ratios), statistics.median(costs))
    p99 = float(np.percentile(beside_job, 99))
    held = ratio >= LEAST_RATIO and p99 <= MOST_MILLISECONDS
    print(
        f"{'PASS' if held else 'FAIL'}: {LEAST_RATIO} of the rate and per core without HTTP and "
        f"{MOST_MILLISECONDS:.0f} ms beside a job are asked"
    )


if __name__ == "__main__":
    main()
