"""What a worker of tests works with, and the jobs that are submitted to it."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from multiprocessing.context import ForkServerContext
from pathlib import Path
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq
from sqlalchemy import Engine

from api.jobs.queue import Progress, claim, succeed
from api.jobs.store import Job, SubmitLimits, get_job, submit
from api.jobs.stored_result import StoredResult
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.worker.heartbeat import Heartbeat
from api.worker.job_child import cached_loader
from api.worker.job_observer import Observer, ignore
from api.worker.job_process import JobProcess
from api.worker.job_runner import run_job
from api.worker.worker import Worker, run_attempt, work
from difficulty_service.backbones import Loader
from tests.small_network import SLOW, SMALL

LONG = {"backbone": SLOW, "augment_runs": 8}
"""Fields of a job whose images take long enough to interrupt it."""

LOAD = cached_loader()


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
        """Waits until the first images are encoded."""
        wait_for_progress(self.engine, self.job)

    def stored(self) -> Job:
        """The job as the database has it now."""
        return stored(self.engine, self.job)


def stored(engine: Engine, job: Job) -> Job:
    """The job as the database has it now."""
    found = get_job(engine, None, job.id)
    assert found is not None
    return found


def wait_for_progress(engine: Engine, job: Job) -> None:
    """Waits until the first images of a job are encoded."""
    while not stored(engine, job).done:
        time.sleep(0.01)


def is_running(process: int | None) -> bool:
    """Whether there is a process with an id."""
    return process is not None and Path(f"/proc/{process}").exists()


@dataclass(frozen=True)
class Bench:
    """Settings of a fast worker, its database, and photos in the root `pictures`."""

    engine: Engine
    settings: Settings
    photos: Path  # forty images in two class folders, in the folder `photos` of the root
    context: ForkServerContext  # starts the processes that run jobs

    @property
    def artifacts(self) -> Artifacts:
        """What jobs publish."""
        return open_artifacts(self.settings.artifact_root)

    def with_settings(self, **changes: Any) -> Self:  # noqa: ANN401 - of any type
        """The same with some other settings."""
        return replace(self, settings=self.settings.model_copy(update=changes))

    def submit(self, **fields: object) -> Job:
        """A queued job that scores the photos, with these fields of its request."""
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
        return submit(self.engine, "", request | fields, None, SubmitLimits(100, 3))[0]

    def claim(self, **fields: object) -> Job:
        """Such a job, claimed."""
        self.submit(**fields)
        return self.claim_next()

    def claim_next(self) -> Job:
        """The next job of the queue, claimed."""
        job = claim(self.engine, "worker", "cpu", 60.0)
        assert job is not None
        return job

    def run(
        self, job: Job, check: Callable[[Progress], None] = ignore, load: Loader = LOAD
    ) -> StoredResult:
        """Runs an attempt of a claimed job in this process."""
        observer = Observer(check)
        return run_job(job, self.settings, self.engine, self.artifacts, observer, load)

    def finish(self, job: Job) -> StoredResult:
        """Runs a claimed job to its recorded end."""
        result = self.run(job)
        assert succeed(self.engine, job, result)
        return result

    def table(self, result: StoredResult | None, name: str = "scores.parquet") -> pa.Table:
        """A table that a job has published."""
        assert result is not None
        with self.artifacts.open(f"{result.prefix}/{name}") as file:
            return pq.read_table(file)

    def stored(self, job: Job) -> Job:
        """The job as the database has it now."""
        return stored(self.engine, job)

    def wait_for(self, job: Job, state: str) -> Job:
        """The job once it is in a state, which a worker brings it to."""
        while (found := self.stored(job)).state != state:
            assert found.state in ("queued", "running"), found
            time.sleep(0.01)
        return found

    def files_under_way(self) -> list[Path]:
        """Files in the work folders of jobs."""
        return [path for path in self.settings.work_dir.rglob("*") if path.is_file()]

    @contextmanager
    def working(self) -> Iterator[threading.Thread]:
        """Runs a worker in a thread, which ends with the context."""
        stopping = threading.Event()
        arguments = (self.settings, stopping.is_set, self.context)
        thread = threading.Thread(target=work, args=arguments)
        thread.start()
        try:
            yield thread
        finally:
            stopping.set()
            thread.join()

    @contextmanager
    def attempting(
        self,
        stop: Callable[[], bool] = bool,
        *,
        frozen: bool = False,
        **changed: Any,  # noqa: ANN401 - settings
    ) -> Iterator[Attempt]:
        """Runs one attempt of the next job in a thread, which ends with the context."""
        own = self.with_settings(**changed).settings
        job = claim(self.engine, "worker", "cpu", own.lease)
        assert job is not None
        heartbeat = Heartbeat(self.engine, "worker", own, stop)
        process = JobProcess(own, self.context)
        process.start()
        attempt = Attempt(job, self.engine, process)
        if frozen:
            attempt.send(signal.SIGSTOP)
        worker = Worker("worker", own, self.engine, self.artifacts, process, heartbeat, stop)
        with heartbeat.started():
            thread = threading.Thread(target=run_attempt, args=(worker, job))
            thread.start()
            try:
                yield attempt
            finally:
                thread.join()
                process.close()
