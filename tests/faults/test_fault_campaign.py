"""Whatever is killed, full or away: every job ends once, with the scores it would have had.

DIFFICULTY_FAULTS=full runs the whole campaign instead of a short one.
"""

import hashlib
import multiprocessing
import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError

from api.artifacts import Artifacts, open_artifacts
from api.database import connect, migrate
from api.job_rows import Job
from api.job_store import SubmitLimits, counts, events_after, get_job, submit
from api.settings import Settings
from api.tables import FINAL_STATES, JOBS
from api.worker import run_worker

DATASETS = ("one", "two", "three")
CLASSES = ("bird", "cat")
EACH = 30  # images of a class: shards enough to lose some and keep some

POLL_SECONDS = 0.02
LONGEST_DELAY_SECONDS = 0.6  # between a claim and the kill
OUTAGE_SECONDS = 1.5
ATTEMPTS = 100  # what is killed by chance must not run out of them


Answer = TypeVar("Answer")
Fault = Callable[[], None]


@dataclass(frozen=True)
class Campaign:
    """How much is done and how much of it is broken."""

    jobs: int
    workers: int
    kills: int


CAMPAIGNS = {"short": Campaign(12, 2, 4), "full": Campaign(100, 4, 40)}


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Makes processes that need not load torch anew: it is loaded once, in the one they leave."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["api.worker"])
    return context


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
    return Settings(
        roots={"root": str(root)},
        data_dir=disk,
        database_url=database[0],
        device="cpu",
        lease=3.0,
        heartbeat=0.3,
        poll=0.1,
        retry_delay=0.1,
    )


@pytest.fixture
def engine(settings: Settings) -> Iterator[Engine]:
    engine = connect(settings.resolved_database_url.get_secret_value())
    migrate(engine)
    yield engine
    engine.dispose()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_every_job_ends_once_with_the_scores_of_an_uninterrupted_run(
    processes: ForkServerContext,
    settings: Settings,
    engine: Engine,
    database: tuple[str, Fault | None],
    disk: Path,
) -> None:
    campaign = CAMPAIGNS[os.environ.get("DIFFICULTY_FAULTS", "short")]
    chance = random.Random(40)  # noqa: S311 - moments, not secrets
    restart = database[1] or (lambda: None)
    faults = {campaign.kills // 3: partial(fill_for_a_while, disk), campaign.kills // 2: restart}
    artifacts = open_artifacts(settings.artifact_root)

    with working(processes, settings, 1):
        expected = {dataset: submit_job(engine, dataset, dataset) for dataset in DATASETS}
        wait_for_all(engine)
    jobs: list[tuple[str, Job]] = []

    def submit_next() -> None:
        dataset = DATASETS[len(jobs) % len(DATASETS)]
        jobs.append((dataset, submit_job(engine, dataset, f"job {len(jobs)}")))

    with working(processes, settings, campaign.workers) as workers:
        for kill in range(campaign.kills):
            while len(jobs) * campaign.kills < campaign.jobs * (kill + 1):
                submit_next()
            faults.get(kill, lambda: None)()
            while not (busy := [each for each in workers if is_busy(engine, each)]):
                if not unfinished(engine):  # all were faster than the killer
                    submit_next()
                time.sleep(POLL_SECONDS)
            time.sleep(chance.uniform(0, LONGEST_DELAY_SECONDS))
            victim = chance.choice(busy)
            victim.kill()
            victim.join()
            workers[workers.index(victim)] = start(processes, settings)
        wait_for_all(engine)

    assert len(jobs) >= campaign.jobs
    ended = counts(engine)
    assert ended["succeeded"] == sum(ended.values()) == len(jobs) + len(DATASETS)
    for dataset, job in jobs:
        assert_published_once(engine, job)
        assert published(engine, artifacts, job).equals(
            published(engine, artifacts, expected[dataset])
        )


def start(processes: ForkServerContext, settings: Settings) -> ForkServerProcess:
    process = processes.Process(target=run_worker, args=(settings,), daemon=True)
    process.start()
    return process


@contextmanager
def working(
    processes: ForkServerContext, settings: Settings, number: int
) -> Iterator[list[ForkServerProcess]]:
    """So many workers; whoever replaces one in the list leaves it to be ended with the others."""
    workers = [start(processes, settings) for _ in range(number)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join()


def asked(question: Callable[[], Answer]) -> Answer:
    """The database's answer, however often it is away before."""
    while True:
        with suppress(SQLAlchemyError):
            return question()
        time.sleep(POLL_SECONDS)


def submit_job(engine: Engine, dataset: str, key: str) -> Job:
    """Submits again and again until there is an answer; the key keeps that from making two."""
    request = {
        "dataset": {"root": "root", "path": dataset},
        "backbone": "builtin",
        "scorers": ["rmd"],
        "augment_runs": 2,
        "seed": 0,
        "shrinkage": "ledoit-wolf",
        "gaussians": None,
        "on_error": "skip",
    }
    return asked(lambda: submit(engine, "", request, key, SubmitLimits(1000, ATTEMPTS))[0])


def unfinished(engine: Engine) -> int:
    found = asked(lambda: counts(engine))
    return found["queued"] + found["running"]


def wait_for_all(engine: Engine) -> None:
    while unfinished(engine):
        time.sleep(POLL_SECONDS)


def is_busy(engine: Engine, worker: ForkServerProcess) -> bool:
    """Whether a worker has a job; its process is part of its name."""
    mine = JOBS.c.worker.contains(f"-{worker.pid}-") & (JOBS.c.state == "running")

    def has_job() -> bool:
        with engine.connect() as connection:
            return connection.execute(select(JOBS.c.id).where(mine)).first() is not None

    return asked(has_job)


def fill_for_a_while(disk: Path) -> None:
    """Takes all the space that is left on a disk, and gives it back."""
    ballast = disk / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(4096))
    time.sleep(OUTAGE_SECONDS)
    ballast.unlink()


def assert_published_once(engine: Engine, job: Job) -> None:
    ends = [
        event.data["state"]
        for event in events_after(engine, job.id, 0, 10_000)
        if event.kind == "state" and event.data["state"] in FINAL_STATES
    ]
    assert ends == ["succeeded"]


def published(engine: Engine, artifacts: Artifacts, job: Job) -> pa.Table:
    """The scores of a job; each column of two of them can be compared by `equals`."""
    found = get_job(engine, None, job.id)
    assert found is not None
    assert found.result is not None
    with artifacts.open(f"{found.result['prefix']}/scores.parquet") as file:
        content = file.read()
    assert hashlib.sha256(content).hexdigest() == found.result["scores_sha256"]
    return pq.read_table(pa.BufferReader(content))
