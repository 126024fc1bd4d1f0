"""The process that runs the jobs of a worker, which can end it whatever it does."""

import threading
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection

import torch
from sqlalchemy import Engine

from api.background import Wait, in_background
from api.bounded_cache import BoundedCache
from api.http.public_text import public_names
from api.jobs.failures import describe_failure
from api.jobs.queue import Progress
from api.jobs.store import Job
from api.logs import set_up_logging
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import TRANSIENT_ERRORS, connect
from api.worker.job_messages import (
    Beat,
    Ending,
    Failed,
    Halted,
    Interrupted,
    Message,
    Stage,
    Succeeded,
)
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from difficulty_service.backbones import Loader, load_backbone
from difficulty_service.backbones.backbone import Backbone, BackboneOptions
from difficulty_service.base.devices import failure_of_gpu
from difficulty_service.base.process_setup import give_back_freed_memory, keep_freed_memory
from difficulty_service.extraction.image_watch import ImageWatch


def cached_loader(load: Loader = load_backbone) -> Loader:
    """A loader that keeps one backbone, and returns it as long as the same one is requested."""
    cache: BoundedCache[tuple[str, BackboneOptions], Backbone] = BoundedCache(capacity=1)

    def load_cached(name: str, options: BackboneOptions) -> Backbone:
        def load_into_freed_memory() -> Backbone:
            if options.device.type == "cuda":
                torch.cuda.empty_cache()
            return load(name, options)

        return cache.get((name, options), load_into_freed_memory)

    return load_cached


BEAT_SECONDS = 0.5
SHOWN_IMAGES = 5


class StopRequested(Exception):
    """The worker has told the job to stop."""


def run_jobs(connections: Sequence[Connection], settings: Settings) -> None:
    """Runs each job that arrives, one after another, until the worker closes the connection."""
    (connection,) = connections
    set_up_logging(settings)
    keep_freed_memory()
    runner = JobRunner(
        settings,
        connection,
        connect(settings.resolved_database_url.get_secret_value()),
        open_artifacts(settings.artifact_root),
        cached_loader(),
    )
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while True:
            message = connection.recv()
            if isinstance(message, Job):  # otherwise a stop that came after the job's end
                runner.run(message)
                give_back_freed_memory()


@dataclass
class Activity:
    """What the job is doing."""

    stage: Stage = Stage.STARTING
    since: float = field(default_factory=time.monotonic)  # monotonic time of its last progress
    images: ImageWatch = field(default_factory=ImageWatch)  # that are being read and decoded

    def beat(self) -> Beat:
        """The message for the worker."""
        idle = time.monotonic() - max(self.since, self.images.last_step)
        images = self.images.under_way()[:SHOWN_IMAGES]
        return Beat(self.stage, idle, tuple((each.sample_id, each.seconds) for each in images))


@dataclass(frozen=True)
class JobRunner:
    """Runs jobs and tells the worker how they go."""

    settings: Settings
    connection: Connection
    engine: Engine
    artifacts: Artifacts
    load: Loader
    sending: threading.Lock = field(default_factory=threading.Lock)  # to which two threads write

    def run(self, job: Job) -> None:
        """Runs one job; its ending is the last message about it."""
        activity = Activity()
        with self._beating(activity):
            ending = self._attempt(job, activity)
        self._send(ending)

    def _attempt(self, job: Job, activity: Activity) -> Ending:
        def check(progress: Progress) -> None:
            activity.since = time.monotonic()
            self._send(progress)
            if self.connection.poll():
                self.connection.recv()
                raise StopRequested

        def enter(stage: Stage) -> None:
            activity.stage, activity.since = stage, time.monotonic()
            self._send(activity.beat())

        observer = Observer(check, enter, activity.images)
        try:
            return Succeeded(
                run_job(job, self.settings, self.engine, self.artifacts, observer, self.load)
            )
        except StopRequested:
            return Halted()
        except TRANSIENT_ERRORS as error:
            return Interrupted(type(error).__name__)
        except Exception as error:  # noqa: BLE001 - the worker is told
            cause = failure_of_gpu(self.settings.device) or error
            failure = describe_failure(cause, public_names(self.settings))
            # Others are the dataset's or the request's fault. The worker logs it, unless the job
            # was cancelled meanwhile: its files may be gone.
            lines = traceback.format_exception(error) if failure.retry else []
            return Failed(failure, "".join(lines) or None)

    @contextmanager
    def _beating(self, activity: Activity) -> Iterator[None]:
        """Sends a beat twice a second within the context."""

        def beat(wait: Wait) -> None:
            with suppress(OSError):  # the worker is gone
                while not wait(BEAT_SECONDS):
                    self._send(activity.beat())

        with in_background("beat", beat):
            yield

    def _send(self, message: Message) -> None:
        with self.sending:
            self.connection.send(message)
