"""An attempt that is cancelled, abandoned or stopped while it runs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from sqlalchemy import Engine
from torch import Tensor

from api.jobs.queue import claim
from api.jobs.rows import Job
from api.jobs.store import get_job, request_cancel
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.database import write_transaction
from api.storage.tables import JOBS
from api.worker.backbone_cache import cached_loader
from api.worker.heartbeat import Heartbeat
from api.worker.worker import Worker, run_attempt
from difficulty_service.backbones import Loader
from difficulty_service.backbones.backbone import Backbone, BackboneOptions, Preprocessing

LOAD = cached_loader()

Submit = Callable[..., Job]
Wait = Callable[[Job, str], Job]
Working = Callable[[Settings], AbstractContextManager[threading.Thread]]


@dataclass
class GatedBackbone:
    """A backbone that blocks at its batches until it is released."""

    inner: Backbone
    name: str
    feature_dim: int
    preprocessing: Preprocessing
    weights_sha256: str
    reached: threading.Event = field(default_factory=threading.Event)
    released: threading.Event = field(default_factory=threading.Event)

    def encode(self, images: Tensor) -> Tensor:
        self.reached.set()
        assert self.released.wait(60)
        return self.inner.encode(images)


@pytest.fixture
def gate() -> GatedBackbone:
    inner = LOAD("builtin", BackboneOptions())
    return GatedBackbone(
        inner, inner.name, inner.feature_dim, inner.preprocessing, inner.weights_sha256
    )


@contextmanager
def attempting(
    engine: Engine, settings: Settings, backbone: Backbone, stop: Callable[[], bool] = bool
) -> Iterator[Job]:
    """Runs one attempt with this backbone in a thread, which ends with the context."""
    job = claim(engine, "worker", "cpu", settings.lease)
    assert job is not None
    heartbeat = Heartbeat(engine, "worker", settings, stop)
    load: Loader = lambda _name, _options: backbone  # noqa: E731
    worker = Worker(
        "worker", settings, engine, open_artifacts(settings.artifact_root), load, heartbeat, stop
    )
    with heartbeat.started():
        thread = threading.Thread(target=run_attempt, args=(worker, job))
        thread.start()
        try:
            yield job
        finally:
            thread.join()


def files_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_cancelled_job_stops_and_the_worker_takes_the_next(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    gate: GatedBackbone,
    working: Working,
) -> None:
    job, other = submitted(), submitted()
    artifacts = open_artifacts(settings.artifact_root)

    with attempting(sqlite_engine, settings, gate):
        assert gate.reached.wait(60)
        request_cancel(sqlite_engine, "", job.id)
        wait_for(job, "cancelled")
        gate.released.set()
    with working(settings):
        wait_for(other, "succeeded")

    assert artifacts.list_folders("jobs") == [f"jobs/{other.id}"]
    assert files_below(settings.work_dir) == []


def test_an_abandoned_attempt_does_not_overwrite_its_successor(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    gate: GatedBackbone,
    working: Working,
) -> None:
    job = submitted()
    artifacts = open_artifacts(settings.artifact_root)
    # A heartbeat that never comes: as where the worker was frozen, or cut off.
    silent = settings.model_copy(update={"heartbeat": 3600.0})

    with attempting(sqlite_engine, silent, gate):
        assert gate.reached.wait(60)
        with write_transaction(sqlite_engine) as connection:
            connection.execute(JOBS.update().values(lease_until=0.0))
        with working(settings):
            done = wait_for(job, "succeeded")
        gate.released.set()

    after = wait_for(job, "succeeded")
    assert after == done
    assert done.attempt == 2
    assert artifacts.list_folders(f"jobs/{job.id}") == [f"jobs/{job.id}/a2"]


def test_a_stopping_worker_hands_its_job_back_after_the_grace_period_and_another_resumes_it(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    gate: GatedBackbone,
    working: Working,
) -> None:
    job = submitted()
    hasty = settings.model_copy(update={"grace": 0.01})
    stopping, noticed = threading.Event(), threading.Event()

    def stop() -> bool:
        if stopping.is_set():
            noticed.set()
        return stopping.is_set()

    with attempting(sqlite_engine, hasty, gate, stop):
        assert gate.reached.wait(60)
        stopping.set()
        assert noticed.wait(60)
        time.sleep(5 * hasty.grace)
        gate.released.set()
    handed_back = get_job(sqlite_engine, None, job.id)
    with working(settings):
        done = wait_for(job, "succeeded")

    assert handed_back is not None
    assert handed_back.state == "queued"
    assert handed_back.max_attempts - handed_back.attempt == 3
    assert done.attempt == 2


def test_a_job_that_ends_within_the_grace_time_is_not_handed_back(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    gate: GatedBackbone,
) -> None:
    job = submitted()
    stopping = threading.Event()

    with attempting(sqlite_engine, settings, gate, stopping.is_set):
        assert gate.reached.wait(60)
        stopping.set()
        gate.released.set()

    assert wait_for(job, "succeeded").attempt == 1
