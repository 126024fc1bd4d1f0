"""A worker ends every job that it claims, whatever fails."""

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from sqlalchemy import Engine
from torch import Tensor

from api.jobs.queue import claim
from api.jobs.rows import Job
from api.jobs.store import get_job, request_cancel
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import write_transaction
from api.storage.tables import JOBS
from api.worker.backbone_cache import cached_loader
from api.worker.heartbeat import Heartbeat
from api.worker.worker import Worker, run_attempt, work
from difficulty_service.backbones import Loader
from difficulty_service.backbones.backbone import Backbone, BackboneOptions, Preprocessing

LOAD = cached_loader()
NUM_IMAGES = 40

Submit = Callable[..., Job]
Wait = Callable[[Job, str], Job]
StartWorker = Callable[[], ForkServerProcess]


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


@pytest.fixture
def wait_for(sqlite_engine: Engine) -> Wait:
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


@contextmanager
def working(settings: Settings) -> Iterator[threading.Thread]:
    """A worker in a thread."""
    stopping = threading.Event()
    thread = threading.Thread(target=work, args=(settings, stopping.is_set))
    thread.start()
    try:
        yield thread
    finally:
        stopping.set()
        thread.join()


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


def test_a_submitted_job_gets_its_scores_and_leaves_nothing_under_way(
    settings: Settings, submitted: Submit, wait_for: Wait, artifacts: Artifacts
) -> None:
    job = submitted()

    with working(settings):
        done = wait_for(job, "succeeded")

    assert done.result is not None
    with artifacts.open(f"{done.result['prefix']}/scores.parquet") as file:
        assert len(pq.read_table(file)) == done.total == done.done == NUM_IMAGES
    assert files_below(settings.work_dir) == []


def test_what_earlier_attempts_published_goes_when_one_succeeds(
    settings: Settings, submitted: Submit, wait_for: Wait, artifacts: Artifacts, tmp_path: Path
) -> None:
    job = submitted()
    (tmp_path / "leftover").write_text("of an attempt that was killed")
    artifacts.put(tmp_path / "leftover", f"jobs/{job.id}/a7/scores.parquet")

    with working(settings):
        wait_for(job, "succeeded")

    assert artifacts.list_folders(f"jobs/{job.id}") == [f"jobs/{job.id}/a1"]


def test_a_job_that_can_never_succeed_fails_once_with_the_reason(
    settings: Settings, submitted: Submit, wait_for: Wait, tmp_path: Path
) -> None:
    job = submitted(dataset={"root": "pictures", "path": "none"})

    with working(settings):
        failed = wait_for(job, "failed")

    assert failed.attempt == 1
    assert failed.error is not None
    assert failed.error["type"] == "dataset-error"
    assert "pictures/none" in failed.error["detail"]
    assert str(tmp_path) not in json.dumps(failed.error)
    assert files_below(settings.work_dir) == []


def test_storage_that_fails_for_a_while_costs_attempts_and_not_the_job(
    settings: Settings, submitted: Submit, wait_for: Wait, sqlite_engine: Engine
) -> None:
    job = submitted()
    in_the_way = Path(settings.artifact_root) / "jobs"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a folder must be")
    slower = settings.model_copy(update={"retry_delay": 0.3})

    with working(slower):
        while (get_job(sqlite_engine, None, job.id) or job).error is None:
            time.sleep(0.01)
        in_the_way.unlink()
        done = wait_for(job, "succeeded")

    assert done.attempt > 1
    assert done.error is None


def test_storage_that_fails_for_good_ends_the_job_after_all_attempts(
    settings: Settings, submitted: Submit, wait_for: Wait
) -> None:
    job = submitted()
    in_the_way = Path(settings.artifact_root) / "jobs"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a folder must be")

    with working(settings):
        failed = wait_for(job, "failed")

    assert failed.attempt == failed.max_attempts == 3
    assert failed.error is not None
    assert failed.error["type"] == "storage"


def test_a_cancelled_job_stops_and_the_worker_takes_the_next(
    settings: Settings,
    submitted: Submit,
    wait_for: Wait,
    sqlite_engine: Engine,
    gate: GatedBackbone,
    artifacts: Artifacts,
) -> None:
    job, other = submitted(), submitted()

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
    artifacts: Artifacts,
) -> None:
    job = submitted()
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


def test_an_idle_worker_stops_when_told_to(settings: Settings) -> None:
    with working(settings) as worker:
        assert worker.is_alive()

    assert not worker.is_alive()


def test_a_worker_waits_for_the_tables(settings: Settings, tmp_path: Path) -> None:
    elsewhere = settings.model_copy(
        update={"database_url": None, "data_dir": tmp_path / "not-migrated"}
    )

    with working(elsewhere) as worker:
        time.sleep(0.1)
        assert worker.is_alive()


@pytest.mark.slow
def test_the_first_signal_lets_the_job_finish(
    start_worker: StartWorker, submitted: Submit, wait_for: Wait, sqlite_engine: Engine
) -> None:
    job = submitted(augment_runs=30)

    process = start_worker()
    wait_for_progress(sqlite_engine, job)
    process.terminate()
    process.join(60)

    assert process.exitcode == 0
    assert wait_for(job, "succeeded").attempt == 1


@pytest.mark.slow
def test_the_second_signal_ends_the_process_at_once(
    start_worker: StartWorker, submitted: Submit, sqlite_engine: Engine
) -> None:
    job = submitted(augment_runs=100)

    process = start_worker()
    wait_for_progress(sqlite_engine, job)
    while process.is_alive():  # two signals at the same moment are one
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGINT)
        process.join(0.2)

    assert process.exitcode == 128 + signal.SIGINT
    assert (get_job(sqlite_engine, None, job.id) or job).state == "running"


@pytest.fixture
def start_worker(fork_command: Callable[..., ForkServerProcess], settings: Settings) -> StartWorker:
    """Starts `difficulty worker` as a process of its own."""
    environment = os.environ | {
        "DIFFICULTY_ROOTS": json.dumps(settings.roots),
        "DIFFICULTY_DATA_DIR": str(settings.data_dir),
        "DIFFICULTY_DATABASE_URL": settings.resolved_database_url.get_secret_value(),
        "DIFFICULTY_DEVICE": "cpu",
        "DIFFICULTY_HEARTBEAT": "0.05",
    }
    return lambda: fork_command("worker", environment=environment)


def wait_for_progress(engine: Engine, job: Job) -> None:
    while not (get_job(engine, None, job.id) or job).done:
        time.sleep(0.01)
