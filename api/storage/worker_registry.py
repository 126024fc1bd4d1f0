"""Which workers are there, and what they are doing."""

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
class WorkerRow:
    """A worker as it was heard of last; times are seconds since 1970.

    Attributes:
        job: What it is at; None while it waits.
        images: How many it has worked through since it started.
    """

    id: str
    device: str
    started_at: float
    seen_at: float
    job: str | None
    images: int


@retry
def beat(engine: Engine, worker_id: str, device: str, job: str | None, images: int) -> None:
    """Says that a worker is there; the first time is when it started."""
    with write_transaction(engine) as connection:
        at = now(connection)
        said = {"device": device, "seen_at": at, "job": job, "images": images}
        row = {"id": worker_id, "started_at": at, **said}
        statement = INSERTS[connection.dialect.name](WORKERS).values(row)
        connection.execute(statement.on_conflict_do_update(index_elements=["id"], set_=said))


def alive(engine: Engine, within: float) -> list[WorkerRow]:
    """The workers heard of in the last `within` seconds, by id."""
    with engine.connect() as connection:
        since = now(connection) - within
        query = select(WORKERS).where(WORKERS.c.seen_at >= since).order_by(WORKERS.c.id)
        return [WorkerRow(**row._asdict()) for row in connection.execute(query)]


@retry
def forget(engine: Engine, worker_id: str) -> None:
    """Removes a worker that stops."""
    with write_transaction(engine) as connection:
        connection.execute(delete(WORKERS).where(WORKERS.c.id == worker_id))
