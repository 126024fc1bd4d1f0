"""The database that servers and workers share: SQLite by default, PostgreSQL by URL."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.dialects import postgresql, sqlite

from api.settings import Settings
from difficulty_service.base.errors import ConfigError, DifficultyError
from difficulty_service.base.extras import needs_extra

DAMAGED_SQLITE_CODES = (11, 26)  # SQLITE_CORRUPT, SQLITE_NOTADB


class DatabaseUnusable(DifficultyError):
    """The database is of a kind or at a revision that this program does not support."""


class DatabaseDamaged(DatabaseUnusable):
    """The file of the database is damaged."""


def is_damaged(error: BaseException) -> bool:
    """Whether an error says that the file of the database is damaged."""
    code = getattr(getattr(error, "orig", None), "sqlite_errorcode", 0)
    return isinstance(error, sa.exc.DBAPIError) and code & 0xFF in DAMAGED_SQLITE_CODES


@contextmanager
def naming_damage(engine: sa.Engine) -> Iterator[None]:
    """Within the context, a damaged file is `DatabaseDamaged`, with its name and the remedy."""
    try:
        yield
    except sa.exc.DBAPIError as error:
        if not is_damaged(error):
            raise
        file = engine.url.database
        raise DatabaseDamaged(
            f"the database {file} is damaged ({error.orig})",
            f"stop the server and all workers, then restore a backup of {file}, or save what can "
            f"be read with `sqlite3 {file} .recover | sqlite3 new.sqlite`, and start them again",
            parameter="database_url",
        ) from error


MIGRATIONS = Path(__file__).parent.parent / "migrations"
BUSY_TIMEOUT = 30.0  # seconds that a writer waits for another in SQLite

# Never to be changed: every process that migrates must take the same lock.
MIGRATION_LOCK = 0x0D1FF1C
BEGIN_DELAYS = (0.1, 0.2, 0.4, 0.8, 1.6)  # together longer than a restart of PostgreSQL takes
MAX_RETRIES = 3
MAX_RETRY_SECONDS = 10.0  # after which nothing is retried: the caller waits for an answer

# Serialization failure, deadlock, too many connections, shut down, crashed, starting up.
TRANSIENT_STATES = ("40001", "40P01", "53300", "57P01", "57P02", "57P03")
TRANSIENT_SQLITE_CODES = (5, 6)  # SQLITE_BUSY, SQLITE_LOCKED

TRANSIENT_ERRORS = (
    sa.exc.OperationalError,
    sa.exc.InterfaceError,
    sa.exc.InternalError,
    sa.exc.TimeoutError,
)
"""Errors of a database that is down, full or busy; the same may succeed later."""

CLOCKS = {
    # julianday() is the only sub-second clock of SQLite before 3.42.
    "sqlite": sa.text("SELECT (julianday('now') - 2440587.5) * 86400.0"),
    # Not now(): that is when the transaction began, before it waited for a lock.
    "postgresql": sa.text("SELECT CAST(extract(epoch FROM clock_timestamp()) AS double precision)"),
}

INSERTS: dict[str, Callable[[sa.Table], Any]] = {
    "sqlite": sqlite.insert,
    "postgresql": postgresql.insert,
}
"""Inserts that may do something else where the row is there, by kind of database."""

P = ParamSpec("P")
T = TypeVar("T")


def connect(url: str) -> sa.Engine:
    """Creates a pool of connections; nothing is read yet.

    Raises:
        DatabaseUnusable: Another database, or one in memory, which processes cannot share.
    """
    try:
        parsed = sa.make_url(url)
    except sa.exc.ArgumentError:
        # Without the URL itself, which may hold a password.
        raise DatabaseUnusable(
            "the URL of the database cannot be read",
            "write sqlite:///FILE or postgresql://USER@HOST/NAME",
            parameter="database_url",
        ) from None
    kind = parsed.get_backend_name()
    if kind not in OPENERS:
        raise DatabaseUnusable(
            f"databases of the kind {kind!r} are not supported",
            f"use {' or '.join(OPENERS)}",
            parameter="database_url",
        )
    return OPENERS[kind](parsed)


def _open_sqlite(url: sa.URL) -> sa.Engine:
    file = url.database
    if not file or file == ":memory:" or file.startswith("file:"):
        raise DatabaseUnusable(
            f"SQLite needs the path of a file, not {file!r}", parameter="database_url"
        )
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    engine = sa.create_engine(
        url, connect_args={"timeout": BUSY_TIMEOUT}, pool_size=8, max_overflow=64
    )
    sa.event.listen(engine, "connect", _prepare_sqlite)
    sa.event.listen(engine, "begin", _begin_sqlite)
    return engine


@needs_extra("a PostgreSQL database", "postgresql", parameter="database_url")
def _open_postgresql(url: sa.URL) -> sa.Engine:
    return sa.create_engine(
        url.set(drivername="postgresql+psycopg"),
        pool_pre_ping=True,  # a connection may have been lost since, as after a restart
        pool_recycle=1800,
        pool_size=8,
        max_overflow=24,
        # A host that disappeared is noticed within half a minute, not within hours.
        connect_args={
            "client_encoding": "utf8",  # of a database in SQL_ASCII, texts would be bytes
            "connect_timeout": 10,
            "keepalives_idle": 15,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": 30_000,
        },
    )


OPENERS: dict[str, Callable[[sa.URL], sa.Engine]] = {
    "sqlite": _open_sqlite,
    "postgresql": _open_postgresql,
}


def _prepare_sqlite(connection: Any, _: object) -> None:  # noqa: ANN401 - the driver's own
    connection.isolation_level = None  # `_begin_sqlite` begins transactions, not the driver
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # an accepted job survives a power cut


def _begin_sqlite(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    # SQLite alters a table by dropping it, which would delete all rows that refer to it. The pragma
    # has no effect inside a transaction.
    enforces_references = options.get("enforces_references", True)
    connection.exec_driver_sql(f"PRAGMA foreign_keys = {'ON' if enforces_references else 'OFF'}")
    # A read transaction cannot wait to become a write transaction: its snapshot would be outdated.
    connection.exec_driver_sql("BEGIN IMMEDIATE" if options.get("writes") else "BEGIN")


@contextmanager
def write_transaction(engine: sa.Engine) -> Iterator[sa.Connection]:
    """A write transaction, committed at the end, rolled back on an error.

    Its beginning is retried for a few seconds while the database is locked or restarts. Its body
    cannot be: see `retry`.
    """
    transaction = _begin_with_retries(engine, time.monotonic() + MAX_RETRY_SECONDS)
    with transaction.connection, transaction:
        yield transaction.connection


def _begin_with_retries(engine: sa.Engine, deadline: float) -> sa.RootTransaction:
    for delay in BEGIN_DELAYS:
        try:
            return _begin(engine)
        except sa.exc.DBAPIError as error:
            if not is_transient(error) or time.monotonic() >= deadline:
                raise
            time.sleep(delay)
    return _begin(engine)


def _begin(engine: sa.Engine) -> sa.RootTransaction:
    connection = engine.connect().execution_options(writes=True)
    try:
        return connection.begin()
    except BaseException:
        connection.close()
        raise


def retry(function: Callable[P, T]) -> Callable[P, T]:
    """Retries a function of one transaction after transient errors of the database.

    A commit whose confirmation was lost is retried as well, so the function must recognise its own
    earlier success.
    """

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        deadline = time.monotonic() + MAX_RETRY_SECONDS
        for _ in range(MAX_RETRIES):
            try:
                return function(*args, **kwargs)
            except sa.exc.DBAPIError as error:
                if not is_transient(error) or time.monotonic() >= deadline:
                    raise
        return function(*args, **kwargs)

    return call


def is_transient(error: sa.exc.DBAPIError) -> bool:
    """Whether a retry may succeed: the database was locked, restarting or unreachable."""
    state = getattr(error.orig, "sqlstate", None)
    # The error of a connection that could not be made has no state.
    unreachable = type(error.orig).__module__.startswith("psycopg") and state is None
    return (
        error.connection_invalidated
        or unreachable
        or state in TRANSIENT_STATES
        or getattr(error.orig, "sqlite_errorcode", 0) & 0xFF in TRANSIENT_SQLITE_CODES
    )


def now(connection: sa.Connection) -> float:
    """Seconds since 1970 by the clock of the database, the only one that all processes share."""
    return float(connection.execute(CLOCKS[connection.dialect.name]).scalar_one())


def migrate(engine: sa.Engine) -> None:
    """Upgrades the tables to the newest revision; safe to call from several processes at once.

    Raises:
        DatabaseUnusable: They are of a revision that this version does not know. A newer version
            made them, or a development build from before the first release.
    """
    with write_transaction(engine.execution_options(enforces_references=False)) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(
                sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": MIGRATION_LOCK}
            )
        config = _config()
        present = MigrationContext.configure(connection).get_current_revision()
        known = {each.revision for each in ScriptDirectory.from_config(config).walk_revisions()}
        if present not in {None, *known}:
            raise DatabaseUnusable(
                f"the database is at revision {present}, which this version does not know: it was "
                "made by a newer version, or by a development build from before the first release",
                "use the version that made it, or a new database",
                parameter="database_url",
            )
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def require_current(engine: sa.Engine) -> None:
    """Refuses tables of another revision."""
    with engine.connect() as connection:
        present = MigrationContext.configure(connection).get_current_revision()
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    if present != newest:
        raise DatabaseUnusable(
            f"the database is at revision {present}, this program needs {newest}",
            "start `difficulty serve` of the newest version once, which upgrades the database",
        )


@contextmanager
def open_database(settings: Settings) -> Iterator[sa.Engine]:
    """Connects to the database and upgrades its tables.

    Raises:
        ConfigError: The database does not answer.
        DatabaseUnusable: It is of a kind that this program does not support, or damaged.
    """
    engine = connect(settings.resolved_database_url.get_secret_value())
    try:
        with naming_damage(engine):
            migrate(engine)
            yield engine
    except sa.exc.SQLAlchemyError as error:
        # Not the whole message, which may contain a statement and its values.
        reason = " ".join(str(getattr(error, "orig", None) or type(error).__name__).split())
        raise ConfigError(
            f"the database does not answer ({reason})",
            "check DIFFICULTY_DATABASE_URL",
            parameter="database_url",
        ) from error
    finally:
        engine.dispose()


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config
