"""Deletes expired jobs and uploads, and files that killed workers left behind."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import structlog
from sqlalchemy import Engine

from api.jobs.files import delete_finished, delete_left_files, finish_deletions
from api.jobs.store import Cursor, Job, expired_jobs, list_jobs
from api.settings import MEBIBYTE, Settings
from api.storage.artifacts import Artifacts
from api.uploads.store import delete_upload, delete_upload_file, expired_uploads, touch

PAGE = 200


def delete_expired(engine: Engine, settings: Settings, artifacts: Artifacts) -> None:
    """Deletes expired jobs, expired uploads and orphaned files; workers may do so concurrently."""
    deleted = {
        "jobs": delete_expired_jobs(engine, settings, artifacts),
        "uploads": delete_expired_uploads(engine, settings),
        "unfinished_deletions": finish_deletions(engine, settings, artifacts),
        "folders": delete_left_files(engine, settings, artifacts),
        "features": shrink(
            settings.feature_cache_dir,
            settings.feature_cache_mb * MEBIBYTE,
            unused_since=time.time() - settings.keep_jobs,
        ),
    }
    if any(deleted.values()):
        structlog.get_logger().info("expired-deleted", **deleted)


def delete_expired_jobs(engine: Engine, settings: Settings, artifacts: Artifacts) -> int:
    """Deletes jobs that finished `settings.keep_jobs` seconds ago; returns their number."""
    deleted = 0
    while jobs := expired_jobs(engine, settings.keep_jobs):
        for job in jobs:
            deleted += delete_finished(engine, settings, artifacts, job.owner, job.id)
    return deleted


def delete_expired_uploads(engine: Engine, settings: Settings) -> int:
    """Deletes uploads unused for `settings.keep_uploads` seconds; returns their number.

    The upload of a queued or running job is in use.
    """
    for job in _unfinished(engine):
        if job.wanted.dataset.upload:
            touch(engine, job.wanted.dataset.upload)
    uploads = expired_uploads(engine, settings.keep_uploads)
    for upload in uploads:
        delete_upload_file(settings, upload.id, upload.format)
        delete_upload(engine, upload.id)
    return len(uploads)


def _unfinished(engine: Engine) -> Iterator[Job]:
    for state in ("queued", "running"):
        before = None
        while page := list_jobs(engine, None, state=state, limit=PAGE, before=before):
            yield from page
            before = Cursor(page[-1].created_at, page[-1].id)


PARTS = "*/*.arrow"


def shrink(folder: Path, max_bytes: int, unused_since: float = 0.0) -> int:
    """Deletes files of a cache, those not used for longest first; gives the number of deleted ones.

    At most `max_bytes` remain, and nothing that was not used after `unused_since`, in seconds since
    the epoch.
    """
    files = []
    for file in folder.glob(PARTS):
        with suppress(FileNotFoundError):  # another worker has deleted it
            status = file.stat()
            files.append((status.st_mtime, status.st_size, file))
    size, deleted = sum(size for _, size, _ in files), 0
    for used, file_size, file in sorted(files):
        if size <= max_bytes and used >= unused_since:
            break
        file.unlink(missing_ok=True)
        size, deleted = size - file_size, deleted + 1
    return deleted
