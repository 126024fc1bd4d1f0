"""Uploads as rows: what was announced, how much of it is there, when it was used last."""

from dataclasses import dataclass

from sqlalchemy import Engine, Row, Select, delete, insert, select, update

from api.storage.database import now, retry, write_transaction
from api.storage.identifiers import is_id, new_id
from api.storage.tables import FINAL_STATES, JOBS, UPLOADS

FORMATS = ("tar", "zip", "parquet")


@dataclass(frozen=True)
class Upload:
    """A dataset that somebody sends; one field per column.

    Attributes:
        id: Names it.
        owner: Id of the key it belongs to.
        format: One of FORMATS.
        size: Bytes announced; None until known.
        received: Bytes that are there.
        state: "open" or "complete".
        sha256: Of the whole, once complete.
        created_at: Seconds since 1970.
        used_at: When something was last done with it.
    """

    id: str
    owner: str
    format: str
    size: int | None
    received: int
    state: str
    sha256: str | None
    created_at: float
    used_at: float


@retry
def create_upload(engine: Engine, owner: str, format_name: str, size: int | None) -> Upload:
    """Announces an upload.

    Args:
        engine: The database.
        owner: Id of the key.
        format_name: One of FORMATS.
        size: Bytes, if known.
    """
    upload_id = new_id()
    with write_transaction(engine) as connection:
        time = now(connection)
        values = {
            "id": upload_id,
            "owner": owner,
            "format": format_name,
            "size": size,
            "received": 0,
            "state": "open",
            "created_at": time,
            "used_at": time,
        }
        connection.execute(insert(UPLOADS).values(values))
        return _upload(connection.execute(_by_id(upload_id)).one())


def get_upload(engine: Engine, owner: str | None, upload_id: str) -> Upload | None:
    """One upload; None if it is not there or is another owner's. Owner None is any."""
    if not is_id(upload_id):
        return None
    with engine.connect() as connection:
        row = connection.execute(_by_id(upload_id)).one_or_none()
    if row is None or owner not in (None, row.owner):
        return None
    return _upload(row)


@retry
def advance(engine: Engine, upload_id: str, received: int) -> None:
    """Notes how many bytes are there."""
    with write_transaction(engine) as connection:
        values = {"received": received, "used_at": now(connection)}
        connection.execute(update(UPLOADS).where(UPLOADS.c.id == upload_id).values(values))


@retry
def complete(engine: Engine, upload_id: str, size: int, sha256: str) -> Upload:
    """Closes an upload, which jobs may then use."""
    with write_transaction(engine) as connection:
        values = {
            "received": size,
            "size": size,
            "sha256": sha256,
            "state": "complete",
            "used_at": now(connection),
        }
        connection.execute(update(UPLOADS).where(UPLOADS.c.id == upload_id).values(values))
        return _upload(connection.execute(_by_id(upload_id)).one())


@retry
def touch(engine: Engine, upload_id: str) -> None:
    """Notes that it is in use, so that it does not expire."""
    with write_transaction(engine) as connection:
        used = update(UPLOADS).where(UPLOADS.c.id == upload_id)
        connection.execute(used.values(used_at=now(connection)))


def expired_uploads(engine: Engine, unused_for: float) -> list[Upload]:
    """Those not used for some seconds."""
    with engine.connect() as connection:
        old = UPLOADS.c.used_at < now(connection) - unused_for
        return [_upload(row) for row in connection.execute(select(UPLOADS).where(old))]


@retry
def delete_upload(engine: Engine, upload_id: str) -> None:
    """Forgets an upload."""
    with write_transaction(engine) as connection:
        connection.execute(delete(UPLOADS).where(UPLOADS.c.id == upload_id))


def list_uploads(engine: Engine, owner: str, limit: int, before: str | None = None) -> list[Upload]:
    """An owner's uploads, newest first, as their names sort; those older than `before`."""
    wanted = select(UPLOADS).where(UPLOADS.c.owner == owner)
    if before is not None:
        wanted = wanted.where(UPLOADS.c.id < before)
    with engine.connect() as connection:
        rows = connection.execute(wanted.order_by(UPLOADS.c.id.desc()).limit(limit))
        return [_upload(row) for row in rows]


def is_needed(engine: Engine, upload_id: str) -> bool:
    """Whether a job that is not finished is to read it."""
    unfinished = JOBS.c.state.not_in(FINAL_STATES)
    # Names are so long that nothing else in a request has the same letters by chance.
    naming = select(JOBS.c.id).where(unfinished, JOBS.c.request.contains(upload_id)).limit(1)
    with engine.connect() as connection:
        return connection.execute(naming).first() is not None


def _by_id(upload_id: str) -> Select[tuple[object, ...]]:
    return select(UPLOADS).where(UPLOADS.c.id == upload_id)


def _upload(row: Row[tuple[object, ...]]) -> Upload:
    return Upload(**row._mapping)
