"""The one database that servers and workers share: SQLite by default, PostgreSQL by URL."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import (
    URL,
    Connection,
    Engine,
    RootTransaction,
    create_engine,
    event,
    make_url,
    text,
)
from sqlalchemy.exc import ArgumentError, DBAPIError

from difficulty_service.errors import DifficultyError

MIGRATIONS = Path(__file__).parent.parent / "migrations"
BUSY_TIMEOUT = 30.0  # seconds that a writer of SQLite waits for another

# Chosen once and for all: every process that migrates must ask for the same lock.
MIGRATION_LOCK = 0x0D1FF1C
BEGIN_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6)  # together longer than a restart of PostgreSQL takes
REPEATS = 3
PATIENCE = 10.0  # seconds after which nothing is repeated: who called waits for an answer

# Serialization failure, deadlock, too many connections, shut down, crashed, starting up.
PASSING_STATES = ("40001", "40P01", "53300", "57P01", "57P02", "57P03")
PASSING_SQLITE = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED

CLOCKS = {
    # julianday() is the only sub-second clock of SQLite before 3.42.
    "sqlite": text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    # Not now(): that is when the transaction began, before it waited for a lock.
    "postgresql": text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"),
}

P = ParamSpec("P")
T = TypeVar("T")


class DatabaseUnusable(DifficultyError):
    """The database is of a kind, or at a revision, that this program cannot work with."""


def connect(url: str) -> Engine:
    """Opens a pool of connections; nothing is read yet.

    Args:
        url: As SQLAlchemy takes it: `sqlite:///folder/file`, `postgresql://user@host/name`.

    Raises:
        DatabaseUnusable: Another database, or one in memory, which processes cannot share.
    """
    try:
        parsed = make_url(url)
    except ArgumentError:
        # Not with the URL itself, which may hold a password.
        raise DatabaseUnusable(
            "the database's URL cannot be read; write sqlite:///FILE or postgresql://USER@HOST/NAME"
        ) from None
    kind = parsed.get_backend_name()
    if kind not in OPENERS:
        raise DatabaseUnusable(f"no database of kind {kind!r}; one of {', '.join(OPENERS)}")
    return OPENERS[kind](parsed)


def _open_sqlite(url: URL) -> Engine:
    file = url.database
    if not file or file == ":memory:" or file.startswith("file:"):
        raise DatabaseUnusable(f"SQLite needs the path of a file, not {file!r}")
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    engine = create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT}, pool_size=8, max_overflow=64
    )
    event.listen(engine, "connect", _prepare_sqlite)
    event.listen(engine, "begin", _begin_sqlite)
    return engine


def _open_postgresql(url: URL) -> Engine:
    return create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,  # a connection may have died since, as after a restart
        pool_recycle=1800,
        pool_size=8,
        max_overflow=24,
        # A host that went away is noticed within half a minute, not within hours.
        connect_args={
            "connect_timeout": 10,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        },
    )


OPENERS: dict[str, Callable[[URL], Engine]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgresql,
}


def _prepare_sqlite(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own
    connection.isolation_level = None  # the driver begins no transactions; `_begin_sqlite` does
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a job that was accepted outlives a power cut


def _begin_sqlite(connection: Connection) -> None:
    options = connection.get_execution_options()
    # SQLite alters a table by dropping it, which would delete all that refers to its rows. The
    # switch has no effect inside a transaction.
    keeps_references = options.get("keeps_references", True)
    connection.exec_driver_sql(f"PRAGMA foreign_keys = {'ON' if keeps_references else 'OFF'}")
    # A reader that turns writer may not wait: it would read what is no longer true.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A write transaction, committed at the end, rolled back on an error.

    Beginning is repeated for a few seconds while the database is locked or restarts. What
    happens inside cannot be: see `repeated`.
    """
    transaction = _begun(engine, time.monotonic() + PATIENCE)
    with transaction.connection, transaction:
        yield transaction.connection


def _begun(engine: Engine, until: float) -> RootTransaction:
    for delay in BEGIN_DELAYS:
        try:
            return _begin(engine)
        except DBAPIError as error:
            if not is_passing(error) or time.monotonic() >= until:
                raise
            time.sleep(delay)
    return _begin(engine)


def _begin(engine: Engine) -> RootTransaction:
    connection = engine.connect().execution_options(writes=True)
    try:
        return connection.begin()
    except BaseException:
        connection.close()
        raise


def repeated(function: Callable[P, T]) -> Callable[P, T]:
    """Repeats a function of one transaction where the database asks for it.

    A commit whose answer was lost is repeated as well, so the function must recognise its own
    earlier success.
    """

    @wraps(function)
    def repeat(*args: P.args, **kwargs: P.kwargs) -> T:
        until = time.monotonic() + PATIENCE
        for _ in range(REPEATS):
            try:
                return function(*args, **kwargs)
            except DBAPIError as error:
                if not is_passing(error) or time.monotonic() >= until:
                    raise
        return function(*args, **kwargs)

    return repeat


def is_passing(error: DBAPIError) -> bool:
    """Whether the same may succeed a moment later: locked, deadlocked, restarting, disconnected."""
    state = getattr(error.orig, "sqlstate", None)
    # A connection that could not be made has an error without a state.
    unreachable = type(error.orig).__module__.startswith("psycopg") and state is None
    return (
        error.connection_invalidated
        or unreachable
        or state in PASSING_STATES
        or getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in PASSING_SQLITE
    )


def now(connection: Connection) -> float:
    """Seconds since 1970 by the database's clock, the only one that all processes share."""
    return float(connection.execute(CLOCKS[connection.dialect.name]).scalar_one())


def migrate(engine: Engine) -> None:
    """Brings the tables to the newest revision; safe to call from several processes at once."""
    with writing(engine.execution_options(keeps_references=False)) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(
                text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK}
            )
        config = _config()
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def require_current(engine: Engine) -> None:
    """Raises unless the tables are at the newest revision.

    Raises:
        DatabaseUnusable: They are at another; the message says which.
    """
    with engine.connect() as connection:
        found = MigrationContext.configure(connection).get_current_revision()
    wanted = ScriptDirectory.from_config(_config()).get_current_head()
    if found != wanted:
        raise DatabaseUnusable(
            f"the database is at revision {found}, this program needs {wanted}; "
            "start `difficulty serve` of the newest version once, which upgrades the database"
        )


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
