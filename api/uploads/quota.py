"""What a key keeps in the service, and how much it may keep.

The numbers are those of the database and of the files themselves, so that they are right after
every deletion and every crash: nothing is added up along the way.
"""

from collections import defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

from sqlalchemy import Connection, Engine, case, func, select, text

from api.http.problems import Problem
from api.settings import Settings
from api.storage.tables import JOBS, UPLOADS
from difficulty_service.bodies.service import Usage

# Together with the hash of the owner, the lock that serialises what an owner adds.
OWNER_LOCK = 0x0D1FF1D
RETRY_AFTER = 30  # seconds; another request of the key may be completing an upload
IDS_AT_ONCE = 500
FREES = (
    "delete uploads with DELETE /v1/uploads/{upload_id}, or finished jobs, with their results and "
    "features, with DELETE /v1/jobs/{job_id}; GET /v1/usage says how much there is of each"
)


@dataclass(frozen=True)
class Quota:
    """How much a key may keep, and what it keeps outside the database."""

    max_bytes: int
    max_open_uploads: int
    feature_bytes: int  # of features that are kept for later jobs


def quota_of(engine: Engine, settings: Settings, owner: str) -> Quota:
    """The quota of a key, with the size of its features by their files on this machine."""
    sizes: dict[str, int] = defaultdict(int)
    for file in settings.feature_cache_dir.glob("*/*.arrow"):
        with suppress(FileNotFoundError):  # a worker has deleted it
            sizes[file.stem.rpartition("-")[0]] += file.stat().st_size
    feature_bytes = _of_owner(engine, owner, sizes)
    return Quota(settings.max_stored_bytes, settings.max_open_uploads, feature_bytes)


def _of_owner(engine: Engine, owner: str, sizes: Mapping[str, int]) -> int:
    """The sum of the sizes of those jobs that are the owner's."""
    ids, total = list(sizes), 0
    with engine.connect() as connection:
        for start in range(0, len(ids), IDS_AT_ONCE):
            named = JOBS.c.id.in_(ids[start : start + IDS_AT_ONCE])
            owned = connection.execute(select(JOBS.c.id).where(named, JOBS.c.owner == owner))
            total += sum(sizes[job_id] for job_id in owned.scalars())
    return total


def usage_of(connection: Connection, owner: str, quota: Quota) -> Usage:
    """What a key keeps now. An open upload counts with the size that was announced."""
    is_open = UPLOADS.c.state == "open"
    announced = func.coalesce(UPLOADS.c.size, 0)
    size = case((announced > UPLOADS.c.received, announced), else_=UPLOADS.c.received)
    uploads = select(
        func.coalesce(func.sum(size), 0).label("bytes"),
        func.coalesce(func.sum(case((is_open, 1), else_=0)), 0).label("open"),
    ).where(UPLOADS.c.owner == owner)
    results = select(func.coalesce(func.sum(JOBS.c.stored_bytes), 0)).where(JOBS.c.owner == owner)
    sent = connection.execute(uploads).one()
    parts = {
        "upload_bytes": int(sent.bytes),
        "result_bytes": int(connection.execute(results).scalar_one()),
        "feature_bytes": quota.feature_bytes,
    }
    return Usage(
        **parts,
        total_bytes=sum(parts.values()),
        max_bytes=quota.max_bytes,
        open_uploads=int(sent.open),
        max_open_uploads=quota.max_open_uploads,
    )


def find_usage(engine: Engine, settings: Settings, owner: str) -> Usage:
    """What a key keeps now, with its features."""
    quota = quota_of(engine, settings, owner)
    with engine.connect() as connection:
        return usage_of(connection, owner, quota)


def lock_owner(connection: Connection, owner: str) -> None:
    """Lets nothing else be added for an owner until the transaction ends.

    In SQLite, no other transaction writes anyway.
    """
    if connection.dialect.name == "postgresql":
        lock = text("SELECT pg_advisory_xact_lock(:lock, hashtext(:owner))")
        connection.execute(lock, {"lock": OWNER_LOCK, "owner": owner})


def require_room(usage: Usage, more: int | None = None) -> None:
    """Refuses to keep this number of bytes more; with None, anything more of unknown size."""
    left = usage.max_bytes - usage.total_bytes
    if left <= 0 or (more or 0) > left:
        parts = (
            f"{usage.upload_bytes:,} of uploads, {usage.result_bytes:,} of results, "
            f"{usage.feature_bytes:,} of features"
        )
        raise _beyond(f"the key keeps {usage.total_bytes:,} bytes ({parts})", usage.max_bytes)


def beyond_quota(quota: Quota, received: int) -> Problem:
    """For an upload whose size was not announced, and which has become too large for the key."""
    return _beyond(f"{received:,} bytes have arrived", quota.max_bytes, received)


def _beyond(reason: str, limit: int, received: int | None = None) -> Problem:
    headers = {} if received is None else {"Connection": "close", "Upload-Offset": str(received)}
    detail = f"{reason}, with more it would keep more than the {limit:,} allowed"
    return Problem(507, "quota", detail, FREES, headers=headers)


def require_open_upload(usage: Usage) -> None:
    """Refuses another open upload where there are as many as a key may have."""
    if usage.open_uploads >= usage.max_open_uploads:
        raise Problem(
            429,
            "too-many-uploads",
            f"{usage.open_uploads} uploads are open, the maximum is {usage.max_open_uploads}",
            "complete them with PUT, or delete them with DELETE /v1/uploads/{upload_id}; "
            "GET /v1/uploads lists them",
            headers={"Retry-After": str(RETRY_AFTER)},
        )
