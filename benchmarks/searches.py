"""How long nine keys wait beside a tenth that filters a large column, or marks all it can.

Run: python -m benchmarks.searches [--rounds 20] [--letters 1400]

The tenth key has a job of 100,000 samples with a column of texts of so many letters each, and 45
clients. In the first attack each asks for the samples in whose text one of ten occurs; the column
repeats what these begin with, so that they are looked for slowly. In the second the clients mark
all samples at once. Each of the nine keys has a job of 10,000 samples; it asks for its jobs, for a
page of scores and for one filtered by such a column, and submits a job, again and again. The server
has its default limits but for queued jobs; the worker stands still, as its work is not measured.
"""

import argparse
import http.client
import multiprocessing
import os
import re
import signal
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from api.imported import import_scores
from api.storage.artifacts import open_artifacts
from api.storage.database import connect, write_transaction
from api.storage.keys import find_key
from api.storage.tables import JOBS
from benchmarks.attackers import NICENESS
from benchmarks.machine import machine
from benchmarks.running import client_of, new_key
from benchmarks.ten_keys import BODY, OTHERS, Running, service
from difficulty_service.scores.file import read_scores, write_scores
from difficulty_service.scores.provenance import Provenance

LARGE, SMALL = 100_000, 10_000  # samples
CLIENTS = 45
QUEUED = 10_000
STORED = 8 << 30
FORM = {"Content-Type": "application/x-www-form-urlencoded"}
TEXTS = urlencode(
    [("has.note", "a" * (90 + number) + "b" + "a" * (98 - number) + "c") for number in range(10)]
)

Waits = dict[str, list[float]]
Request = tuple[str, str, bytes]


@dataclass(frozen=True)
class Owner:
    """A key and its finished job."""

    secret: str
    job: str


def new_owner(running: Running, samples: int, letters: int, seed: int) -> Owner:
    """A key with a job of some samples, beside whose scores is a column of texts."""
    secret = new_key(running.database, "write")
    folder = Path(tempfile.mkdtemp(dir=running.data))
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 2, samples)
    ids = [f"photographs/{row:012d}.jpeg" for row in range(samples)]
    columns = {
        "sample_id": ids,
        "label": labels,
        "label_name": [("cat", "dog")[label] for label in labels],
        "rmd": generator.standard_normal(samples),
        "percentile": np.linspace(0, 1, samples),
        "nearest_label": labels,
        "label_margin": -generator.random(samples),
    }
    provenance = Provenance.of({"class_names": ["cat", "dog"], "dataset": "photos"})
    write_scores(folder / "scores.parquet", pa.table(columns), provenance)
    content = read_scores(folder / "scores.parquet")
    engine = connect(running.database)
    try:
        artifacts = open_artifacts(str((running.data / "artifacts").resolve()))
        job = import_scores(engine, artifacts, content, "photos")
        with write_transaction(engine) as connection:
            key = find_key(engine, secret)
            assert key is not None  # noqa: S101 - it was made above
            own = JOBS.update().where(JOBS.c.id == job.id).values(owner=key.id)
            connection.execute(own)
    finally:
        engine.dispose()
    notes = [f"{row} {'a' * letters}" for row in range(samples)]
    table = pa.BufferOutputStream()
    pq.write_table(pa.table({"sample_id": ids, "note": notes}), table)
    with client_of(running.url, secret) as client:
        address = f"/v1/jobs/{job.id}/columns/notes.parquet"
        client.put(address, content=bytes(table.getvalue())).raise_for_status()
        client.get(f"/v1/jobs/{job.id}/scores?has.note=a&limit=1").raise_for_status()
    return Owner(secret, job.id)


def filtering(job: str) -> Request:
    """A list of the samples with one of some texts."""
    return "GET", f"/v1/jobs/{job}/scores?{TEXTS}", b""


def marking(job: str) -> Request:
    """Marks for all samples."""
    return "POST", f"/jobs/{job}/images/mark-matching?sort=file", b"mark=drop"


def attack(url: str, owner: Owner, request: Request, stop: Event) -> None:
    """Sends a request from many clients, again and again, until it is told to stop."""
    os.nice(NICENESS)
    parts = urlsplit(url)
    method, path, body = request

    def send() -> None:
        while not stop.is_set():
            address = (str(parts.hostname), parts.port)
            with (
                closing(http.client.HTTPConnection(*address, timeout=60)) as connection,
                suppress(OSError, http.client.HTTPException),
            ):
                connection.request(method, path, body, FORM | {"X-API-Key": owner.secret})
                answer = connection.getresponse()
                answer.read()
                if answer.status == http.client.TOO_MANY_REQUESTS:
                    stop.wait(float(answer.headers.get("Retry-After", 1)))

    threads = [threading.Thread(target=send) for _ in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def attacked(url: str, owner: Owner, request: Request) -> Iterator[None]:
    """The attack goes on within the context."""
    stop = multiprocessing.Event()
    attacker = multiprocessing.Process(target=attack, args=(url, owner, request, stop))
    attacker.start()
    time.sleep(2)  # until all its clients are at work
    try:
        yield
    finally:
        stop.set()
        attacker.join()


def use(url: str, owner: Owner, rounds: int) -> Waits:
    """Seconds that a key waits for each kind of request."""
    waits: Waits = defaultdict(list)
    with client_of(url, owner.secret) as client:
        asked: dict[str, Callable[[], httpx2.Response]] = {
            "jobs": lambda: client.get("/v1/jobs"),
            "scores": lambda: client.get(f"/v1/jobs/{owner.job}/scores"),
            "filter": lambda: client.get(f"/v1/jobs/{owner.job}/scores?has.note=b"),
            "submit": lambda: client.post("/v1/jobs", json=BODY),
        }
        for _ in range(rounds):
            for kind, ask in asked.items():
                began = time.perf_counter()
                ask().raise_for_status()
                waits[kind].append(time.perf_counter() - began)
    return waits


def use_together(url: str, owners: list[Owner], rounds: int) -> tuple[Waits, float]:
    """What all keys wait for each kind of request, at the same time, and for all together."""
    waits: Waits = defaultdict(list)
    began = time.perf_counter()
    with ThreadPoolExecutor(len(owners)) as pool:
        for each in pool.map(lambda owner: use(url, owner, rounds), owners):
            for kind, seconds in each.items():
                waits[kind] += seconds
    return waits, time.perf_counter() - began


def peak_memory(process: int) -> int:
    """Most memory that a process has had, in MiB."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) >> 10


def row(name: str, waits: Waits, seconds: float, megabytes: int) -> str:
    """A row of the table: for each kind the median and the longest wait, in milliseconds."""
    cells = [
        f"{1000 * statistics.median(each):.0f}, {1000 * max(each):.0f}" for each in waits.values()
    ]
    return f"| {name} | {seconds:.1f} | {' | '.join(cells)} | {megabytes} |"


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--letters", type=int, default=1400)
    options = parser.parse_args()
    multiprocessing.set_start_method("fork")
    print(machine())
    with tempfile.TemporaryDirectory() as name, service(Path(name), QUEUED, STORED) as running:
        os.kill(running.worker, signal.SIGSTOP)
        try:
            url = running.url
            large = new_owner(running, LARGE, options.letters, 0)
            owners = [new_owner(running, SMALL, 100, 1 + number) for number in range(OTHERS)]
            use_together(url, owners, 1)  # what a first request loads
            before = peak_memory(running.server)
            rows = [row("nine alone", *use_together(url, owners, options.rounds), 0)]
            for attack_name, request in (
                ("beside filters", filtering(large.job)),
                ("beside marks", marking(large.job)),
            ):
                with attacked(url, large, request):
                    found = use_together(url, owners, options.rounds)
                rows.append(row(attack_name, *found, peak_memory(running.server) - before))
        finally:
            os.kill(running.worker, signal.SIGCONT)
    print("| | all, s | jobs, ms | scores, ms | a filter, ms | a submission, ms | memory, MiB |")
    print("|---|---|---|---|---|---|---|")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
