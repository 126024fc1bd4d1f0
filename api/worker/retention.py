"""Removes what nobody needs any more: old jobs and uploads, and what killed workers left."""

from collections.abc import Iterator

import structlog
from sqlalchemy import Engine

from api.jobs.files import JOBS_PREFIX, delete_job_files, delete_work, jobs_with_work
from api.jobs.rows import Job
from api.jobs.store import Cursor, delete_job, expired_jobs, get_job, list_jobs
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.storage.tables import FINAL_STATES
from api.uploads.files import delete_upload_file
from api.uploads.store import delete_upload, expired_uploads, touch

PAGE = 200


def sweep(engine: Engine, settings: Settings, artifacts: Artifacts) -> None:
    """Removes old jobs, old uploads and files without a job; several may do so at once."""
    removed = {
        "jobs": remove_old_jobs(engine, settings, artifacts),
        "uploads": remove_old_uploads(engine, settings),
        "folders": remove_orphans(engine, settings, artifacts),
    }
    if any(removed.values()):
        structlog.get_logger().info("swept", **removed)


def remove_old_jobs(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Removes jobs that finished longer than `settings.keep_jobs` ago; gives how many."""
    removed = 0
    while jobs := expired_jobs(engine, settings.keep_jobs):
        for job in jobs:
            # Files first: after a crash between, the row brings the next sweep back to them.
            delete_job_files(settings, artifacts, job.id)
            removed += delete_job(engine, job.owner, job.id) is not None
    return removed


def remove_old_uploads(engine: Engine, settings: Settings) -> int:
    """Removes uploads unused for `settings.keep_uploads`; gives how many.

    What a job waits for or works on is in use.
    """
    for job in _unfinished(engine):
        upload_id = job.request["dataset"].get("upload")
        if upload_id is not None:
            touch(engine, upload_id)
    uploads = expired_uploads(engine, settings.keep_uploads)
    for upload in uploads:
        delete_upload_file(settings, upload.id, upload.format)
        delete_upload(engine, upload.id)
    return len(uploads)


def remove_orphans(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Removes folders of jobs that are not there or are finished; gives how many.

    A job's row is there before its first file, so none of a new job is taken for an orphan.
    """
    removed = 0
    for job_id in jobs_with_work(settings.work_dir):
        job = get_job(engine, None, job_id)
        if job is None or job.state in FINAL_STATES:
            delete_work(settings.work_dir, job_id)
            removed += 1
    for prefix in artifacts.list_folders(JOBS_PREFIX):
        if get_job(engine, None, prefix.removeprefix(f"{JOBS_PREFIX}/")) is None:
            artifacts.delete_prefix(prefix)
            removed += 1
    return removed


def _unfinished(engine: Engine) -> Iterator[Job]:
    for state in ("queued", "running"):
        before = None
        while page := list_jobs(engine, None, state=state, limit=PAGE, before=before):
            yield from page
            before = Cursor(page[-1].created_at, page[-1].id)
