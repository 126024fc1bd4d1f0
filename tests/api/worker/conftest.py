"""A small dataset, settings and jobs for workers to run."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.jobs.queue import claim
from api.jobs.store import Job, SubmitLimits, get_job, submit
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.worker.heartbeat import Heartbeat
from api.worker.job_process import JobProcess
from api.worker.worker import Worker, run_attempt, work
from tests.factories import write_image_folder
from tests.small_network import SMALL

CLASSES = ("bird", "cat")
IMAGES_PER_CLASS = 20

Attempting = Callable[..., AbstractContextManager["Attempt"]]


@dataclass(frozen=True)
class Attempt:
    """An attempt that runs in a thread, and its process."""

    job: Job
    engine: Engine
    process: JobProcess

    def send(self, number: int) -> None:
        """Sends a signal to the process of the job."""
        os.kill(self.process.pid or 0, number)

    def wait_for_progress(self) -> None:
        while not self.stored().done:
            time.sleep(0.01)

    def stored(self) -> Job:
        job = get_job(self.engine, None, self.job.id)
        assert job is not None
        return job


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Forty images in two class folders, in the folder `photos` of a root."""
    folder = tmp_path / "roots" / "photos"
    return write_image_folder(folder, CLASSES, IMAGES_PER_CLASS, size=(8, 8), name="{:02d}.png")


@pytest.fixture
def settings(tmp_path: Path, photos: Path, sqlite_url: str) -> Settings:
    """Settings of a fast worker, with the root `pictures`."""
    return Settings(
        roots={"pictures": str(photos.parent)},
        data_dir=tmp_path / "data",
        database_url=sqlite_url,
        device="cpu",
        default_backbone="builtin",
        heartbeat=0.05,
        poll=0.02,
        retry_delay=0.0,
    )


@pytest.fixture
def artifacts(settings: Settings) -> Artifacts:
    """The artifacts of these settings."""
    return open_artifacts(settings.artifact_root)


@pytest.fixture
def submitted(sqlite_engine: Engine) -> Callable[..., Job]:
    """Submits a job that scores the photos, with these fields of its request."""

    def submit_job(**fields: object) -> Job:
        request = {
            "dataset": {"root": "pictures", "path": "photos"},
            "backbone": SMALL,
            "flip": False,
            "augment_runs": 0,
            "seed": 0,
            "shrinkage": "ledoit-wolf",
            "gaussians": None,
            "on_error": "skip",
        }
        return submit(sqlite_engine, "", request | fields, None, SubmitLimits(100, 3))[0]

    return submit_job


@pytest.fixture
def claimed(sqlite_engine: Engine, submitted: Callable[..., Job]) -> Callable[..., Job]:
    """Submits a job with these fields of its request, and claims it."""

    def submit_and_claim(**fields: object) -> Job:
        submitted(**fields)
        job = claim(sqlite_engine, "worker", "cpu", 60.0)
        assert job is not None
        return job

    return submit_and_claim


@pytest.fixture
def wait_for(sqlite_engine: Engine) -> Callable[[Job, str], Job]:
    """Waits until a job is in a state; returns the job."""

    def wait(job: Job, state: str) -> Job:
        while True:
            stored = get_job(sqlite_engine, None, job.id)
            assert stored is not None
            if stored.state == state:
                return stored
            assert stored.state in ("queued", "running"), stored
            time.sleep(0.01)

    return wait


@pytest.fixture(scope="session")
def working(
    forkserver: ForkServerContext,
) -> Callable[[Settings], AbstractContextManager[threading.Thread]]:
    """Runs a worker in a thread, which ends with the context."""

    @contextmanager
    def run(settings: Settings) -> Iterator[threading.Thread]:
        stopping = threading.Event()
        thread = threading.Thread(target=work, args=(settings, stopping.is_set, forkserver))
        thread.start()
        try:
            yield thread
        finally:
            stopping.set()
            thread.join()

    return run


@pytest.fixture
def attempting(
    sqlite_engine: Engine, settings: Settings, forkserver: ForkServerContext
) -> Attempting:
    """Runs one attempt in a thread, which ends with the context."""

    @contextmanager
    def run(
        stop: Callable[[], bool] = bool, *, frozen: bool = False, **changed: object
    ) -> Iterator[Attempt]:
        own = settings.model_copy(update=changed)
        job = claim(sqlite_engine, "worker", "cpu", own.lease)
        assert job is not None
        heartbeat = Heartbeat(sqlite_engine, "worker", own, stop)
        process = JobProcess(own, forkserver)
        process.start()
        attempt = Attempt(job, sqlite_engine, process)
        if frozen:
            attempt.send(signal.SIGSTOP)
        artifacts = open_artifacts(own.artifact_root)
        worker = Worker("worker", own, sqlite_engine, artifacts, process, heartbeat, stop)
        with heartbeat.started():
            thread = threading.Thread(target=run_attempt, args=(worker, job))
            thread.start()
            try:
                yield attempt
            finally:
                thread.join()
                process.close()

    return run
