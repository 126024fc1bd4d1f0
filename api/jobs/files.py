"""The files of a job: their names, its work folder, and their deletion."""

import fcntl
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from api.jobs.rows import Job
from api.settings import Settings
from api.storage.artifacts import Artifacts

SCORES_FILE = "scores.parquet"
GAUSSIANS_FILE = "gaussians.safetensors"
ERRORS_FILE = "errors.parquet"
MAP_FILE = "map.parquet"
COLUMNS_FILE = "columns.arrow"
VECTORS_FILE = "vectors.npy"
JOBS_PREFIX = "jobs"
LOCK_FILE = "lock"


def job_prefix(job_id: str) -> str:
    """Key of the folder with the files of all attempts of a job."""
    return f"{JOBS_PREFIX}/{job_id}"


def attempt_prefix(job: Job) -> str:
    """Key of the folder with the files of the current attempt."""
    return f"{job_prefix(job.id)}/a{job.attempt}"


def thumbnail_folder(settings: Settings, job_id: str) -> Path:
    """Folder for the thumbnails of a job."""
    return settings.data_dir / "thumbnails" / job_id


def columns_file(settings: Settings, job: Job) -> Path:
    """Copy of COLUMNS_FILE on the server, which its pages read."""
    digest = "" if job.result is None else job.result.scores_sha256[:16]
    return columns_folder(settings, job.id) / f"{digest}.arrow"


def vectors_file(settings: Settings, job: Job) -> Path:
    """Local copy of the vectors by which similar images of a finished job are found."""
    return columns_file(settings, job).with_suffix(".npy")


def columns_folder(settings: Settings, job_id: str) -> Path:
    """Folder for the columns of a job's scores and its vectors."""
    return settings.data_dir / "columns" / job_id


def gaussians_folder(settings: Settings) -> Path:
    """Folder for local copies of the Gaussians of jobs, each below its key."""
    return settings.data_dir / "gaussians"


def local_folders(settings: Settings, job_id: str) -> list[Path]:
    """Every folder outside the artifacts that holds files of one job."""
    return [
        settings.work_dir / job_id,
        thumbnail_folder(settings, job_id),
        columns_folder(settings, job_id),
        gaussians_folder(settings) / job_prefix(job_id),
    ]


def delete_job_files(settings: Settings, artifacts: Artifacts, job_id: str) -> None:
    """Deletes everything that a job has published, is working on or has left for later jobs.

    Raises:
        OSError: Something is left.
    """
    for features in settings.feature_cache_dir.glob(f"*/{job_id}-*.arrow"):
        features.unlink(missing_ok=True)
    for folder in local_folders(settings, job_id):
        with suppress(FileNotFoundError):
            shutil.rmtree(folder)
    artifacts.delete_prefix(job_prefix(job_id))


def delete_other_attempts(artifacts: Artifacts, job: Job) -> None:
    """Deletes the files of unfinished attempts."""
    for folder in artifacts.list_folders(job_prefix(job.id)):
        if folder != attempt_prefix(job):
            artifacts.delete_prefix(folder)


@contextmanager
def work_folder(work_dir: Path, job_id: str, attempt: int) -> Iterator[Path]:
    """The work folder of a job, for the exclusive use of this attempt.

    An abandoned attempt may still be running: its worker was frozen, or had lost the connection to
    the database. As long as it holds the folder, the next attempt gets a new one.

    Args:
        work_dir: Folder of all jobs.
        job_id: Id of the job.
        attempt: Number of the attempt.
    """
    folder = work_dir / job_id
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK_FILE).open("w") as lock:
        try:
            # The kernel releases the lock when the process ends, however it ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            folder /= f"a{attempt}"
            folder.mkdir(exist_ok=True)
        yield folder


def delete_work(work_dir: Path, job_id: str) -> None:
    """Deletes the work folder of a job, if it exists."""
    # An abandoned attempt may still be writing there; a later clean-up deletes what it adds.
    shutil.rmtree(work_dir / job_id, ignore_errors=True)


def jobs_with_local_files(settings: Settings) -> list[str]:
    """Ids of all jobs that have a folder outside the artifacts, sorted."""
    ids: set[str] = set()
    for folder in local_folders(settings, "any"):
        if folder.parent.is_dir():
            ids |= {path.name for path in folder.parent.iterdir() if path.is_dir()}
    return sorted(ids)
