"""Under every fault each job ends once, with the scores it would have had without.

DIFFICULTY_FAULTS=short runs a small campaign instead of the whole one.
"""

import hashlib
import multiprocessing
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import TypeVar

import httpx2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from api.jobs.store import counts, events_after, get_job
from api.server import run_server
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import connect, migrate
from api.storage.tables import FINAL_STATES, JOBS
from api.worker.worker import run_worker

DATASETS = ("one", "two", "three")
CLASSES = ("bird", "cat")
EACH = 24  # images of a class: shards enough to lose some and keep some

POLL_SECONDS = 0.02
MAX_DELAY_SECONDS = 0.6  # between a claim and the kill
OUTAGE_SECONDS = 1.5
ATTEMPTS = 100  # what is killed by chance must not run out of them


Answer = TypeVar("Answer")
Fault = Callable[[], None]


@dataclass(frozen=True)
class Campaign:
    """Numbers of jobs, workers and faults."""

    jobs: int
    workers: int
    kills: int
    server_kills: int


def run_forked_worker(settings: Settings) -> None:
    """Runs a worker whose jobs run in a process that need not load torch either."""
    run_worker(settings, context=multiprocessing.get_context("forkserver"))


CAMPAIGNS = {"short": Campaign(12, 2, 4, 1), "full": Campaign(100, 4, 40, 5)}


class Service:
    """One server and some workers, as processes that are killed and replaced.

    Args:
        settings: Settings of the server and of every worker.
        context: Starts processes that need not load torch.
    """

    def __init__(self, settings: Settings, context: ForkServerContext) -> None:
        self._settings = settings
        self._context = context
        self._server = self._start(run_server, settings, 0)
        self.workers: list[ForkServerProcess] = []

    def add_workers(self, number: int) -> None:
        self.workers += [self._start(run_forked_worker, self._settings) for _ in range(number)]

    def replace_worker(self, worker: ForkServerProcess) -> None:
        worker.kill()
        worker.join()
        self.workers[self.workers.index(worker)] = self._start(run_forked_worker, self._settings)

    def replace_server(self) -> None:
        self._server.kill()
        self._server.join()
        self._server = self._start(run_server, self._settings, 0)

    def close(self) -> None:
        for process in (*self.workers, self._server):
            process.terminate()
        for process in (*self.workers, self._server):
            process.join()

    def _start(self, target: Callable[..., None], *arguments: object) -> ForkServerProcess:
        process = self._context.Process(target=target, args=arguments)
        process.start()
        return process


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small datasets."""
    folder = tmp_path_factory.mktemp("root")
    generator = np.random.default_rng(11)
    for dataset in DATASETS:
        for label, name in enumerate(CLASSES):
            (folder / dataset / name).mkdir(parents=True)
            for number in range(EACH):
                pixels = generator.integers(0, 150, size=(8, 8, 3)) + 60 * label
                path = folder / dataset / name / f"{number:02d}.png"
                Image.fromarray(pixels.astype(np.uint8)).save(path)
    return folder


@pytest.fixture
def settings(root: Path, disk: Path, database: tuple[str, object]) -> Settings:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return Settings(
        roots={"root": str(root)},
        data_dir=disk,
        database_url=database[0],
        port=port,
        device="cpu",
        lease=3.0,
        heartbeat=0.3,
        poll=0.1,
        retry_delay=0.1,
        max_attempts=ATTEMPTS,
        max_queued_jobs=1000,
        rate_limit="1000000/minute",
        log_level="error",
    )


@pytest.fixture
def service(settings: Settings, forkserver: ForkServerContext) -> Iterator[Service]:
    service = Service(settings, forkserver)
    yield service
    service.close()


@pytest.fixture
def client(settings: Settings) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"http://127.0.0.1:{settings.port}", timeout=10) as client:
        yield client


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    engine = connect(settings.resolved_database_url.get_secret_value())
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_job_ends_once_with_the_scores_of_an_uninterrupted_run(
    service: Service,
    client: httpx2.Client,
    engine: Engine,
    settings: Settings,
    database: tuple[str, Fault | None],
) -> None:
    campaign = CAMPAIGNS[os.environ.get("DIFFICULTY_FAULTS", "full")]
    chance = random.Random(40)  # noqa: S311 - moments, not secrets
    faults = planned_faults(campaign, settings.data_dir, database[1])
    expected = {dataset: submit(client, dataset, dataset) for dataset in DATASETS}
    service.add_workers(1)
    wait_for_all(engine)
    jobs: list[str] = []

    service.add_workers(campaign.workers - 1)
    for kill in range(campaign.kills):
        if kill % (campaign.kills // campaign.server_kills) == 0:
            strike = threading.Timer(chance.uniform(0, 0.2), service.replace_server)
            strike.start()
        faults.get(kill, lambda: None)()
        while len(jobs) * campaign.kills < campaign.jobs * (kill + 1):
            jobs.append(submit(client, dataset_of(len(jobs)), f"job {len(jobs)}"))
        while not (busy := [each for each in service.workers if is_busy(engine, each)]):
            if not unfinished(engine):  # all were faster than the killer
                jobs.append(submit(client, dataset_of(len(jobs)), f"job {len(jobs)}"))
            time.sleep(POLL_SECONDS)
        time.sleep(chance.uniform(0, MAX_DELAY_SECONDS))
        service.replace_worker(chance.choice(busy))
        strike.join()
    wait_for_all(engine)

    assert len(set(jobs)) == len(jobs) >= campaign.jobs
    ended = counts(engine)
    assert ended["succeeded"] == sum(ended.values()) == len(jobs) + len(DATASETS)
    artifacts = open_artifacts(settings.artifact_root)
    for number, job_id in enumerate(jobs):
        assert ends(engine, job_id) == ["succeeded"]
        uninterrupted = expected[dataset_of(number)]
        assert published(engine, artifacts, job_id).equals(
            published(engine, artifacts, uninterrupted)
        )


def planned_faults(campaign: Campaign, disk: Path, restart: Fault | None) -> dict[int, Fault]:
    """Other faults, by the number of the kill before which they happen."""
    faults: dict[int, Fault] = {}
    if disk.is_mount():  # otherwise it is the disk that everything here is on
        faults[campaign.kills // 3] = partial(fill_for_a_while, disk)
    if restart is not None:
        faults[campaign.kills // 2] = restart
    return faults


def asked(question: Callable[[], Answer]) -> Answer:
    """Calls a function of the database until it answers."""
    while True:
        with suppress(SQLAlchemyError):
            return question()
        time.sleep(POLL_SECONDS)


def dataset_of(number: int) -> str:
    return DATASETS[number % len(DATASETS)]


def submit(client: httpx2.Client, dataset: str, key: str) -> str:
    """Submits until there is an answer; the idempotency key prevents a second job."""
    request = {
        "dataset": {"root": "root", "path": dataset},
        "backbone": "builtin",
        "shrinkage": "ledoit-wolf",
    }
    while True:
        with suppress(httpx2.TransportError):
            answer = client.post("/v1/jobs", json=request, headers={"Idempotency-Key": key})
            if answer.is_success:
                return str(answer.json()["id"])
            assert answer.is_server_error, answer.text
        time.sleep(POLL_SECONDS)


def unfinished(engine: Engine) -> int:
    found = asked(lambda: counts(engine))
    return found["queued"] + found["running"]


def wait_for_all(engine: Engine) -> None:
    while unfinished(engine):
        time.sleep(POLL_SECONDS)


def is_busy(engine: Engine, worker: ForkServerProcess) -> bool:
    """Whether a worker has a job; its id contains its process id."""
    mine = JOBS.c.worker.contains(f"-{worker.pid}-") & (JOBS.c.state == "running")

    def has_job() -> bool:
        with engine.connect() as connection:
            return connection.execute(select(JOBS.c.id).where(mine)).first() is not None

    return asked(has_job)


def fill_for_a_while(disk: Path) -> None:
    """Fills a disk, and releases the space afterwards."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    time.sleep(OUTAGE_SECONDS)
    ballast.unlink()


def ends(engine: Engine, job_id: str) -> list[str]:
    """The final states that a job has been in."""
    events = events_after(engine, job_id, 0, 10_000)
    states = [event.data["state"] for event in events if event.kind == "state"]
    return [state for state in states if state in FINAL_STATES]


def published(engine: Engine, artifacts: Artifacts, job_id: str) -> pa.Table:
    """The published scores of a job."""
    found = get_job(engine, None, job_id)
    assert found is not None
    assert found.result is not None
    with artifacts.open(f"{found.result['prefix']}/scores.parquet") as file:
        content = file.read()
    assert hashlib.sha256(content).hexdigest() == found.result["scores_sha256"]
    return pq.read_table(pa.BufferReader(content))
