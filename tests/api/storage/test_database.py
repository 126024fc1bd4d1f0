"""The database: connections, migrations, write transactions, retries and its clock."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import Engine, func, select, text
from sqlalchemy.exc import DBAPIError, IntegrityError

from api.storage.database import (
    DatabaseUnusable,
    connect,
    migrate,
    now,
    require_current,
    retry,
    write_transaction,
)
from api.storage.keys import create_key, find_key, list_keys
from api.storage.tables import EVENTS, METADATA, WORKERS

WORKER = {"device": "cpu", "started_at": 0.0, "seen_at": 0.0}


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    """A database that has just been migrated, and whose tables a test may change."""
    engine = connect(database_url)
    migrate(engine)
    yield engine
    engine.dispose()


def test_the_migrations_make_the_tables_as_they_are_written(engine: Engine) -> None:
    with engine.connect() as connection:
        context = MigrationContext.configure(connection)

        assert compare_metadata(context, METADATA) == []


def test_migrating_twice_changes_nothing(engine: Engine) -> None:
    with write_transaction(engine) as connection:
        connection.execute(WORKERS.insert().values(id="w", **WORKER))

    migrate(engine)

    with engine.connect() as connection:
        assert connection.execute(select(func.count()).select_from(WORKERS)).scalar_one() == 1


@pytest.mark.parametrize("revision", ["v0099", "0013"], ids=["newer", "development build"])
def test_tables_of_a_version_that_is_not_known_are_left_alone(
    engine: Engine, revision: str
) -> None:
    with write_transaction(engine) as connection:
        connection.execute(WORKERS.insert().values(id="w", **WORKER))
        update = text("UPDATE alembic_version SET version_num = :revision")
        connection.execute(update, {"revision": revision})

    with pytest.raises(
        DatabaseUnusable,
        match=f"at revision {revision}, which this version does not know: it was made by a newer "
        "version, or by a development build from before the first release; use the version",
    ):
        migrate(engine)

    with engine.connect() as connection:
        assert connection.execute(select(WORKERS.c.id)).scalar_one() == "w"


def test_several_processes_may_migrate_at_once(database_url: str) -> None:
    engines = [connect(database_url) for _ in range(4)]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(migrate, engines))

    require_current(engines[0])
    for engine in engines:
        engine.dispose()


def test_a_database_that_was_never_migrated_is_refused_with_the_remedy(database_url: str) -> None:
    engine = connect(database_url)

    with pytest.raises(DatabaseUnusable, match=r"revision None.*needs v0001.*difficulty serve"):
        require_current(engine)

    engine.dispose()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("sqlite://", "path of a file"),
        ("sqlite:///:memory:", "path of a file"),
        ("mysql://root@localhost/x", "kind 'mysql'"),
        ("not a url with s3cret", "cannot be read"),
    ],
)
def test_a_database_that_processes_cannot_share_is_refused(url: str, message: str) -> None:
    with pytest.raises(DatabaseUnusable, match=message) as caught:
        connect(url)

    assert "s3cret" not in str(caught.value)


def test_a_plain_postgresql_url_selects_the_installed_driver() -> None:
    engine = connect("postgresql://somebody@localhost/name")

    assert engine.driver == "psycopg"


def test_the_clock_is_that_of_the_day_and_knows_parts_of_seconds(engine: Engine) -> None:
    with engine.connect() as connection:
        times = []
        for _ in range(5):
            times.append(now(connection))
            time.sleep(0.002)

    assert times == sorted(times)
    assert abs(times[0] - time.time()) < 3600
    assert any(moment % 1 for moment in times)


def test_an_error_undoes_everything_written_before(engine: Engine) -> None:
    def write_and_fail() -> None:
        with write_transaction(engine) as connection:
            connection.execute(WORKERS.insert().values(id="w", **WORKER))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_and_fail()

    with engine.connect() as connection:
        assert connection.execute(select(WORKERS)).all() == []


def test_writers_wait_for_each_other_instead_of_failing(engine: Engine) -> None:
    with write_transaction(engine) as connection:
        connection.execute(WORKERS.insert().values(id="w", **WORKER))

    def count(_: int) -> None:
        with write_transaction(engine) as connection:
            query = select(WORKERS.c.images).where(WORKERS.c.id == "w").with_for_update()
            images = connection.execute(query).scalar_one()
            connection.execute(WORKERS.update().values(images=images + 1))

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(count, range(40)))

    with engine.connect() as connection:
        assert connection.execute(select(WORKERS.c.images)).scalar_one() == 40


def test_a_reader_sees_what_was_committed_while_a_writer_writes(engine: Engine) -> None:
    with write_transaction(engine) as connection:
        connection.execute(WORKERS.insert().values(id="w", **WORKER))

        with engine.connect() as reader:
            rows = reader.execute(select(WORKERS)).all()

    assert rows == []


def test_what_refers_to_nothing_is_refused(engine: Engine) -> None:
    values = {"job": "nobody", "at": 0.0, "kind": "state", "data": "{}"}

    with write_transaction(engine) as connection, pytest.raises(IntegrityError):
        connection.execute(EVENTS.insert().values(values))


def test_sqlite_writes_ahead_and_syncs_each_commit(sqlite_engine: Engine) -> None:
    with sqlite_engine.connect() as connection:
        values = {
            name: connection.execute(text(f"PRAGMA {name}")).scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }

    assert values == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 30000,
    }


def test_a_writer_of_sqlite_holds_the_lock_from_its_first_moment(
    sqlite_engine: Engine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.storage.database.BUSY_TIMEOUT", 0.0)
    monkeypatch.setattr("api.storage.database.BEGIN_DELAYS", (0.0,))
    impatient = connect(sqlite_url)

    with (
        write_transaction(sqlite_engine),
        pytest.raises(DBAPIError, match="locked"),
        write_transaction(impatient),
    ):
        pass

    impatient.dispose()


def test_beginning_is_retried_until_the_lock_is_free(
    sqlite_engine: Engine, sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.storage.database.BUSY_TIMEOUT", 0.0)
    impatient = connect(sqlite_url)
    held = threading.Event()
    asked = threading.Event()

    def hold() -> None:
        with write_transaction(sqlite_engine):
            held.set()
            asked.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()
    threading.Timer(0.3, asked.set).start()
    with write_transaction(impatient) as connection:
        connection.execute(WORKERS.insert().values(id="w", **WORKER))
    holder.join()

    with sqlite_engine.connect() as connection:
        assert connection.execute(select(WORKERS.c.id)).scalar_one() == "w"
    impatient.dispose()


def end_all_sessions(engine: Engine) -> None:
    """What a restart of PostgreSQL does to its clients."""
    other = connect(engine.url.render_as_string(hide_password=False))
    with other.connect() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid != pg_backend_pid()"
            )
        )
    other.dispose()


def test_connections_that_died_while_they_were_idle_are_replaced(postgresql_engine: Engine) -> None:
    with postgresql_engine.connect() as one, postgresql_engine.connect() as two:
        one.execute(select(WORKERS))
        two.execute(select(WORKERS))

    end_all_sessions(postgresql_engine)

    with postgresql_engine.connect() as one, postgresql_engine.connect() as two:
        assert one.execute(select(WORKERS)).all() == two.execute(select(WORKERS)).all() == []


def test_a_transaction_that_the_server_ended_is_retried(postgresql_engine: Engine) -> None:
    tries = []

    @retry
    def write() -> None:
        with write_transaction(postgresql_engine) as connection:
            tries.append(1)
            if len(tries) == 1:
                end_all_sessions(postgresql_engine)
            connection.execute(WORKERS.insert().values(id="w", **WORKER))

    write()

    with postgresql_engine.connect() as connection:
        assert connection.execute(select(WORKERS.c.id)).scalar_one() == "w"
    assert len(tries) == 2


def test_an_error_that_will_not_pass_is_raised_at_once(engine: Engine) -> None:
    tries = []

    @retry
    def write() -> None:
        tries.append(1)
        with write_transaction(engine) as connection:
            connection.execute(text("SELECT * FROM nowhere"))

    with pytest.raises(DBAPIError, match="nowhere"):
        write()

    assert len(tries) == 1


def test_names_are_text_in_a_database_without_an_encoding_of_its_own(
    postgresql_server: Path, new_postgresql_url: Callable[[], str]
) -> None:
    url = new_postgresql_url()
    name = url.split("/")[3].partition("?")[0]
    with psycopg.connect(
        f"host={postgresql_server} user=difficulty dbname=postgres", autocommit=True
    ) as connection:
        connection.execute(f"DROP DATABASE {name}")
        connection.execute(
            f"CREATE DATABASE {name} ENCODING SQL_ASCII LOCALE 'C' TEMPLATE template0"
        )
    engine = connect(url)
    migrate(engine)

    created, secret = create_key(engine, "Zoë", ["read"])

    assert find_key(engine, secret) == created
    assert [key.name for key in list_keys(engine)] == ["Zoë"]
    engine.dispose()
