"""Deletes finished jobs: first hidden from clients, then without files, then without a row.

Whatever ends a deletion early, the row that is left leads `finish_deletions` to what remains. A
request that was being answered meanwhile may add a file afterwards, such as a thumbnail;
`delete_left_files` deletes the folders of jobs that are gone.
"""

import shutil

import structlog
from sqlalchemy import Engine

from api.jobs.files import (
    JOBS_PREFIX,
    delete_job_files,
    delete_work,
    jobs_with_local_files,
    local_folders,
)
from api.jobs.store import begin_deletion, end_deletion, get_job, jobs_to_delete
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.storage.tables import FINAL_STATES


def delete_finished(
    engine: Engine, settings: Settings, artifacts: Artifacts, owner: str | None, job_id: str
) -> bool:
    """Deletes a finished job with its files.

    Files that cannot be deleted now are left to `finish_deletions`.

    Args:
        engine: The database.
        settings: Settings with the folders of files.
        artifacts: Results of the jobs.
        owner: Owner of the job; None for any.
        job_id: Id of the job.

    Returns:
        False if it does not exist, is not finished, or belongs to another owner.
    """
    if not begin_deletion(engine, owner, job_id):
        return False
    _finish(engine, settings, artifacts, job_id)
    return True


def finish_deletions(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Finishes the deletions that were begun; returns the number of those that are finished."""
    ids = jobs_to_delete(engine)
    return sum(_finish(engine, settings, artifacts, job_id) for job_id in ids)


def delete_left_files(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Deletes folders whose job is gone, and the work of finished jobs; returns their number.

    The row of a job exists before its first file, so no file of a new job is deleted.
    """
    deleted = 0
    for job_id in jobs_with_local_files(settings):
        job = get_job(engine, None, job_id)
        if job is None:
            deleted += any(folder.exists() for folder in local_folders(settings, job_id))
            for folder in local_folders(settings, job_id):
                shutil.rmtree(folder, ignore_errors=True)
        elif job.state in FINAL_STATES and (settings.work_dir / job_id).exists():
            delete_work(settings.work_dir, job_id)
            deleted += 1
    for prefix in artifacts.list_folders(JOBS_PREFIX):
        if get_job(engine, None, prefix.removeprefix(f"{JOBS_PREFIX}/")) is None:
            artifacts.delete_prefix(prefix)
            deleted += 1
    return deleted


def _finish(engine: Engine, settings: Settings, artifacts: Artifacts, job_id: str) -> bool:
    try:
        delete_job_files(settings, artifacts, job_id)
    except OSError as error:
        structlog.get_logger().warning(
            "deletion-unfinished",
            job=job_id,
            reason=type(error).__name__,
            consequence="tried again",
        )
        return False
    end_deletion(engine, job_id)
    return True
