"""Completes uploads whose last byte arrived just before their server ended."""

from pathlib import Path

import structlog
from sqlalchemy import Engine

from api.http.problems import Problem
from api.settings import Settings
from api.uploads.checking import UploadChecks
from api.uploads.files import locked, sha256_of, upload_path
from api.uploads.store import Upload, complete, received_uploads


def complete_received(engine: Engine, settings: Settings, checks: UploadChecks) -> int:
    """Checks uploads that are open although all their bytes are there; returns those completed.

    An upload that another server is checking, or that cannot be read, stays open.
    """
    return sum(
        _complete(engine, upload, upload_path(settings, upload.id, upload.format), checks)
        for upload in received_uploads(engine)
    )


def _complete(engine: Engine, upload: Upload, path: Path, checks: UploadChecks) -> bool:
    log = structlog.get_logger().bind(upload=upload.id)
    try:
        if path.stat().st_size != upload.received:
            return False
        with locked(path):
            checks.check(path, upload.format)
            complete(engine, upload.id, upload.received, sha256_of(path))
    except BlockingIOError:
        return False
    except (OSError, Problem) as error:
        log.warning("upload-unusable", reason=str(error))
        return False
    log.info("upload-completed", bytes=upload.received)
    return True
