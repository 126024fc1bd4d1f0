"""Rows of uploads: what was announced, how much has arrived, when it was last used."""

from dataclasses import dataclass

from sqlalchemy import Engine, Row, Select, delete, insert, select, update

from api.storage.database import now, retry, write_transaction
from api.storage.identifiers import is_id, new_id
from api.storage.tables import DELETING, FINAL_STATES, JOBS, UPLOADS

FORMATS = ("tar", "zip", "parquet")


@dataclass(frozen=True)
class Upload:
    """One row of `UPLOADS`; times are in seconds since 1970.

    Attributes:
        id: Id of the upload.
        owner: Id of the key it belongs to.
        format: One of FORMATS.
        size: Announced number of bytes; None until known.
        received: Number of bytes received.
        state: "open" or "complete".
        sha256: SHA-256 of the complete file.
        created_at: Time of its creation.
        used_at: Time of its last use.
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
    """Creates an upload.

    Args:
        engine: The database.
        owner: Id of the key.
        format_name: One of FORMATS.
        size: Number of bytes, if known.
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
    """An upload; None if it does not exist or belongs to another owner; owner None sees all."""
    if not is_id(upload_id):
        return None
    with engine.connect() as connection:
        row = connection.execute(_by_id(upload_id)).one_or_none()
    if row is None or owner not in (None, row.owner):
        return None
    return _upload(row)


@retry
def advance(engine: Engine, upload_id: str, received: int) -> None:
    """Records the number of bytes received."""
    with write_transaction(engine) as connection:
        values = {"received": received, "used_at": now(connection)}
        connection.execute(update(UPLOADS).where(UPLOADS.c.id == upload_id).values(values))


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
        connection.execute(update(UPLOADS).where(UPLOADS.c.id == upload_id).values(values))
        return _upload(connection.execute(_by_id(upload_id)).one())


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


def received_uploads(engine: Engine) -> list[Upload]:
    """Uploads that are open although all their bytes have arrived."""
    with engine.connect() as connection:
        received = (UPLOADS.c.state == "open") & (UPLOADS.c.received == UPLOADS.c.size)
        return [_upload(row) for row in connection.execute(select(UPLOADS).where(received))]


@retry
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


def _by_id(upload_id: str) -> Select[tuple[object, ...]]:
    return select(UPLOADS).where(UPLOADS.c.id == upload_id)


def _upload(row: Row[tuple[object, ...]]) -> Upload:
    return Upload(**row._mapping)
