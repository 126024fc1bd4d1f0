"""Rows and files of uploads: streamed to disk, resumable, never unpacked.

Completes uploads whose last byte arrived just before their server ended.
"""

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import structlog
from sqlalchemy import Engine, Row, delete, insert, select, update

from api.http.problems import Problem
from api.settings import Settings
from api.storage.database import now, retry, write_transaction
from api.storage.space import makes_room
from api.storage.tables import DELETING, JOBS, UPLOADS, is_id, new_id
from api.uploads.checking import UploadChecks
from api.uploads.quota import Quota, lock_owner, require_open_upload, require_room, usage_of
from difficulty_service.base.files import file_sha256
from difficulty_service.bodies.jobs import FINAL_STATES
from difficulty_service.bodies.uploads import LARGEST

FORMATS = ("tar", "zip", "parquet")


@dataclass(frozen=True)
class Upload:
    """One row of `UPLOADS`; times are in seconds since 1970."""

    id: str
    owner: str
    name: str | None  # of the file
    format: str  # one of FORMATS
    size: int | None  # announced number of bytes; None until known
    received: int
    state: str  # "open" or "complete"
    sha256: str | None  # of the complete file
    created_at: float
    used_at: float


@retry
def create_upload(
    engine: Engine,
    owner: str,
    format_name: str,
    size: int | None,
    quota: Quota | None = None,
    *,
    name: str | None = None,
) -> Upload:
    """Creates an upload; one with a size has that reserved of the quota, if there is one.

    Raises:
        Problem: The owner has too many open uploads, or keeps as much as it may.
    """
    with write_transaction(engine) as connection:
        if quota is not None:
            lock_owner(connection, owner)
            usage = usage_of(connection, owner, quota)
            require_open_upload(usage)
            require_room(usage, size)
        time = now(connection)
        values = {
            "id": new_id(),
            "owner": owner,
            "name": name,
            "format": format_name,
            "size": size,
            "state": "open",
            "created_at": time,
            "used_at": time,
        }
        added = insert(UPLOADS).values(values).returning(*UPLOADS.c)
        return _upload(connection.execute(added).one())


def get_upload(engine: Engine, owner: str | None, upload_id: str) -> Upload | None:
    """An upload; None if it does not exist or belongs to another owner; owner None sees all."""
    if not is_id(upload_id):
        return None
    with engine.connect() as connection:
        row = connection.execute(select(UPLOADS).where(UPLOADS.c.id == upload_id)).one_or_none()
    if row is None or owner not in (None, row.owner):
        return None
    return _upload(row)


@retry
def advance(engine: Engine, upload_id: str, received: int, quota: Quota | None = None) -> int:
    """Records the number of bytes received; gives how many the upload may have by a quota."""
    with write_transaction(engine) as connection:
        values = {"received": received, "used_at": now(connection)}
        changed = update(UPLOADS).where(UPLOADS.c.id == upload_id).values(values)
        owner = connection.execute(changed.returning(UPLOADS.c.owner)).scalar_one_or_none()
        if quota is None or owner is None:
            return LARGEST
        usage = usage_of(connection, owner, quota)
    return received + max(0, usage.max_bytes - usage.total_bytes)


@retry
def complete(engine: Engine, upload_id: str, size: int, sha256: str) -> Upload:
    """Marks an upload as complete, so that jobs may use it."""
    with write_transaction(engine) as connection:
        values = {
            "received": size,
            "size": size,
            "sha256": sha256,
            "state": "complete",
            "used_at": now(connection),
        }
        completed = update(UPLOADS).where(UPLOADS.c.id == upload_id).values(values)
        return _upload(connection.execute(completed.returning(*UPLOADS.c)).one())


@retry
def touch(engine: Engine, upload_id: str) -> None:
    """Records that an upload is in use, so that it does not expire."""
    with write_transaction(engine) as connection:
        used = update(UPLOADS).where(UPLOADS.c.id == upload_id)
        connection.execute(used.values(used_at=now(connection)))


def expired_uploads(engine: Engine, unused_for: float) -> list[Upload]:
    """Uploads not used for this number of seconds."""
    with engine.connect() as connection:
        old = UPLOADS.c.used_at < now(connection) - unused_for
        return [_upload(row) for row in connection.execute(select(UPLOADS).where(old))]


@retry
@makes_room
def delete_upload(engine: Engine, upload_id: str) -> None:
    """Deletes the row of an upload."""
    with write_transaction(engine) as connection:
        connection.execute(delete(UPLOADS).where(UPLOADS.c.id == upload_id))


def list_uploads(engine: Engine, owner: str, limit: int, before: str | None = None) -> list[Upload]:
    """Uploads of an owner that are older than `before`, newest first, which is the order of ids."""
    query = select(UPLOADS).where(UPLOADS.c.owner == owner)
    if before is not None:
        query = query.where(UPLOADS.c.id < before)
    with engine.connect() as connection:
        rows = connection.execute(query.order_by(UPLOADS.c.id.desc()).limit(limit))
        return [_upload(row) for row in rows]


def is_needed(engine: Engine, upload_id: str) -> bool:
    """Whether an unfinished job needs an upload."""
    unfinished = JOBS.c.state.not_in((*FINAL_STATES, DELETING))
    # Ids are so long that nothing else in a request contains one by chance.
    needing = select(JOBS.c.id).where(unfinished, JOBS.c.request.contains(upload_id)).limit(1)
    with engine.connect() as connection:
        return connection.execute(needing).first() is not None


def _upload(row: Row[tuple[object, ...]]) -> Upload:
    return Upload(**row._mapping)


def upload_path(settings: Settings, upload_id: str, format_name: str) -> Path:
    """The file of an upload, complete or not."""
    return settings.upload_dir / f"{upload_id}.{format_name}"


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Opens the file of an upload with an exclusive lock; creates it if needed.

    Raises a `BlockingIOError` where another request holds the lock.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o640)
    try:
        # The lock ends with its process, so a killed server leaves no upload locked.
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        # Not left to closing: a process that another thread is just starting has a copy of the
        # descriptor until its program runs, and the lock would last as long.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


@contextmanager
def appending(path: Path, offset: int, confirm: Callable[[], None] = lambda: None) -> Iterator[int]:
    """Opens the file of an upload to resume at an offset; gives a descriptor there.

    What follows the offset is truncated. `confirm` is called with the lock held, and raises if the
    offset is not right. Raises a `BlockingIOError` while another request is appending, and a
    `ValueError` where the file ends before the offset.
    """
    with locked(path) as descriptor:
        confirm()
        if os.fstat(descriptor).st_size < offset:
            raise ValueError(f"the file ends before byte {offset}")
        # Bytes that an interrupted request wrote but did not record are sent again.
        os.ftruncate(descriptor, offset)
        os.lseek(descriptor, offset, os.SEEK_SET)
        yield descriptor
        os.fsync(descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Writes all bytes, in several calls if necessary."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def delete_upload_file(settings: Settings, upload_id: str, format_name: str) -> None:
    """Deletes the file of an upload, if there is one."""
    upload_path(settings, upload_id, format_name).unlink(missing_ok=True)


def complete_received(engine: Engine, settings: Settings, checks: UploadChecks) -> int:
    """Checks uploads that are open although all their bytes are there; returns those completed.

    An upload that another server is checking, or that cannot be read, stays open.
    """
    received = (UPLOADS.c.state == "open") & (UPLOADS.c.received == UPLOADS.c.size)
    with engine.connect() as connection:
        uploads = [_upload(row) for row in connection.execute(select(UPLOADS).where(received))]
    return sum(
        _complete(engine, upload, upload_path(settings, upload.id, upload.format), checks)
        for upload in uploads
    )


def _complete(engine: Engine, upload: Upload, path: Path, checks: UploadChecks) -> bool:
    log = structlog.get_logger().bind(upload=upload.id)
    try:
        if path.stat().st_size != upload.received:
            return False
        with locked(path):
            checks.check(path, upload.format)
            complete(engine, upload.id, upload.received, file_sha256(path))
    except BlockingIOError:
        return False
    except (OSError, Problem) as error:
        log.warning("upload-unusable", reason=str(error))
        return False
    log.info("upload-completed", bytes=upload.received)
    return True
