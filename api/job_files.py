"""The files of a job: what they are called, and how they go."""

import shutil
from pathlib import Path

from api.artifacts import Artifacts
from api.job_rows import Job
from api.settings import Settings
from api.work_folders import delete_work

SCORES_FILE = "scores.parquet"
GAUSSIANS_FILE = "gaussians.safetensors"
ERRORS_FILE = "errors.parquet"
JOBS_PREFIX = "jobs"


def job_prefix(job_id: str) -> str:
    """Key of the folder for the files of all attempts of a job."""
    return f"{JOBS_PREFIX}/{job_id}"


def attempt_prefix(job: Job) -> str:
    """Key of the folder for the files of the present attempt."""
    return f"{job_prefix(job.id)}/a{job.attempt}"


def thumbnail_folder(settings: Settings, job_id: str) -> Path:
    """Where thumbnails of a job's images are kept."""
    return settings.data_dir / "thumbnails" / job_id


def delete_job_files(settings: Settings, artifacts: Artifacts, job_id: str) -> None:
    """Deletes all that a job has published and has under way."""
    delete_work(settings.work_dir, job_id)
    shutil.rmtree(thumbnail_folder(settings, job_id), ignore_errors=True)
    artifacts.delete_prefix(job_prefix(job_id))


def delete_other_attempts(artifacts: Artifacts, job: Job) -> None:
    """Deletes what attempts published that did not come to an end."""
    for folder in artifacts.list_folders(job_prefix(job.id)):
        if folder != attempt_prefix(job):
            artifacts.delete_prefix(folder)
