"""How the dataset of a job would be read, and how long it would take by those that finished."""

from collections.abc import Callable
from statistics import median

from sqlalchemy import Engine

from api.http.principals import Principal
from api.http.problems import unreadable
from api.http.public_text import public_names
from api.jobs.dataset import DatasetLocation, find_dataset, open_job_dataset
from api.jobs.failures import describe_failure
from api.jobs.queue import live_workers
from api.jobs.store import succeeded_at_once
from api.jobs.submission import validate_submission
from api.settings import Settings
from difficulty_service.base.apart import Apart, ProcessEnded
from difficulty_service.base.errors import DifficultyError
from difficulty_service.bodies.jobs import JobCreate, JobEstimate, JobRequest
from difficulty_service.dataset_formats import DatasetPreview
from difficulty_service.datasets.preview import preview

LONGEST_COUNT = 10.0  # seconds, after which the number of samples counts as unknown
RECENT = 20  # jobs that are looked at
MOST_CLASSES = 100  # that are named, with their numbers of samples
Previews = Apart[[JobRequest, DatasetLocation, Settings], DatasetPreview]
"""Says in a process of its own how a dataset would be read, by listing it."""


def preview_datasets() -> Callable[[JobRequest, DatasetLocation, Settings], DatasetPreview]:
    """The function of `Previews`."""
    return preview_job_dataset


def preview_job_dataset(
    wanted: JobRequest, location: DatasetLocation, settings: Settings
) -> DatasetPreview:
    """How the dataset of a job would be read; no image is opened."""
    return preview(open_job_dataset(wanted, location, settings), wanted.split, MOST_CLASSES)


def estimate_job(
    body: JobCreate, key: Principal, settings: Settings, engine: Engine, previews: Previews
) -> JobEstimate:
    """Estimates a job; raises a `Problem` where it cannot be submitted or its dataset be listed."""
    wanted = JobRequest(**validate_submission(body, settings, engine, key))
    location = find_dataset(wanted.dataset, key.owner, settings, engine)
    samples, passes = wanted.limit, wanted.num_passes
    reading = None
    try:
        reading = previews.call_within(LONGEST_COUNT, wanted, location, settings)
        samples = reading.num_samples
    except ProcessEnded:
        pass
    except (DifficultyError, OSError) as error:
        failure = describe_failure(error, public_names(settings))
        raise unreadable(failure.detail, failure.remedy or "name another", "dataset") from error
    devices = {worker.device for worker in live_workers(engine, settings.lease)}
    rates = [
        job.result.num_samples * job.wanted.num_passes / max(job.finished_at - job.started_at, 1e-3)
        for job in succeeded_at_once(engine, wanted.backbone, devices or {settings.device}, RECENT)
        if job.result and job.finished_at and job.started_at and not job.result.num_reused
    ]
    rate = median(rates) if rates else None
    seconds = samples * passes / rate if samples is not None and rate else None
    return JobEstimate(
        reading=reading,
        samples=samples,
        passes=passes,
        jobs=len(rates),
        rate=rate,
        seconds=seconds,
    )
