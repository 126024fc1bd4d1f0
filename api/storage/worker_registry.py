"""The registry of workers: which are alive, and what they are doing."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Engine, Table, delete, select
from sqlalchemy.dialects import postgresql, sqlite

from api.storage.database import now, retry, write_transaction
from api.storage.tables import WORKERS

INSERTS: dict[str, Callable[[Table], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}


@dataclass(frozen=True)
class WorkerStatus:
    """A worker at its last heartbeat; times are in seconds since 1970."""

    id: str
    device: str
    started_at: float
    seen_at: float
    job: str | None  # None while it is idle
    images: int  # processed since it started


@retry
def record_heartbeat(
    engine: Engine, worker_id: str, device: str, job: str | None, images: int
) -> None:
    """Records that a worker is alive; the first heartbeat is its start."""
    with write_transaction(engine) as connection:
        at = now(connection)
        values = {"device": device, "seen_at": at, "job": job, "images": images}
        row = {"id": worker_id, "started_at": at, **values}
        statement = INSERTS[connection.dialect.name](WORKERS).values(row)
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=values))


def live_workers(engine: Engine, within: float) -> list[WorkerStatus]:
    """Workers with a heartbeat in the last `within` seconds, by id."""
    with engine.connect() as connection:
        since = now(connection) - within
        query = select(WORKERS).where(WORKERS.c.seen_at >= since).order_by(WORKERS.c.id)
        return [WorkerStatus(**row._asdict()) for row in connection.execute(query)]


@retry
def remove_worker(engine: Engine, worker_id: str) -> None:
    """Removes a worker that has stopped."""
    with write_transaction(engine) as connection:
        connection.execute(delete(WORKERS).where(WORKERS.c.id == worker_id))
