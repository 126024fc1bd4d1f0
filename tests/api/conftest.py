"""Databases to test against: SQLite files and a PostgreSQL server."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import Engine, TextClause, text

from api.storage import database
from api.storage.database import connect, migrate
from api.storage.tables import METADATA

START_TIMEOUT = 60.0
ACCOUNTS = ("postgres", "nobody")  # PostgreSQL refuses to run as root


@pytest.fixture(scope="session", autouse=True)
def networks_of_jobs(small_networks: None) -> None:
    """Has jobs that run in the test know the networks of tests."""


@pytest.fixture(scope="session")
def postgresql_server() -> Iterator[Path]:
    """Folder of a running PostgreSQL server, with its socket; its superuser is `difficulty`."""
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("PostgreSQL is not installed: no initdb and postgres")
    account = other_account()
    folder = Path(tempfile.mkdtemp(prefix="difficulty-pg-"))
    try:
        if "user" in account:
            os.chown(folder, account["user"], account["group"])
        with running_server(binaries, folder, account):
            yield folder
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def new_postgresql_url(postgresql_server: Path) -> Callable[[], str]:
    """Creates an empty PostgreSQL database; returns its URL."""
    numbers = count()

    def create() -> str:
        name = f"test{next(numbers)}"
        with psycopg.connect(address(postgresql_server), autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        return f"postgresql+psycopg://difficulty@/{name}?host={postgresql_server}"

    return create


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    """URL of an SQLite database that does not exist yet."""
    return f"sqlite:///{tmp_path / 'database' / 'difficulty.sqlite'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_kind(request: pytest.FixtureRequest) -> str:
    """One test with SQLite and one with PostgreSQL."""
    return str(request.param)


@pytest.fixture
def database_url(request: pytest.FixtureRequest, database_kind: str) -> Iterator[str]:
    """An empty database of its own, without tables."""
    if database_kind == "sqlite":
        yield request.getfixturevalue("sqlite_url")
        return
    url = request.getfixturevalue("new_postgresql_url")()
    yield url
    name = url.partition("@/")[2].partition("?")[0]
    with psycopg.connect(
        address(request.getfixturevalue("postgresql_server")), autocommit=True
    ) as connection:
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An SQLite database with all tables, to be copied: to create them takes far longer."""
    file = tmp_path_factory.mktemp("database") / "difficulty.sqlite"
    with migrated(f"sqlite:///{file}"):
        pass
    return file


@pytest.fixture(scope="session")
def migrated_postgresql(new_postgresql_url: Callable[[], str]) -> Iterator[Engine]:
    """A PostgreSQL database with all tables for the whole session."""
    with migrated(new_postgresql_url()) as engine:
        yield engine


@pytest.fixture
def postgresql_engine(migrated_postgresql: Engine) -> Iterator[Engine]:
    """A PostgreSQL database with all tables, which are empty."""
    engine = connect(migrated_postgresql.url.render_as_string(hide_password=False))
    yield engine
    engine.dispose()
    empty_tables(migrated_postgresql)


@pytest.fixture
def engine(request: pytest.FixtureRequest, database_kind: str) -> Engine:
    """A database with all tables, which are empty."""
    engine: Engine = request.getfixturevalue(f"{database_kind}_engine")
    return engine


@pytest.fixture
def sqlite_engine(sqlite_url: str, migrated_file: Path) -> Iterator[Engine]:
    """An SQLite database with all tables, at `sqlite_url`."""
    engine = connect(sqlite_url)
    shutil.copy(migrated_file, str(engine.url.database))
    yield engine
    engine.dispose()


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the clock of the databases forward by some seconds, or back, from what it is."""

    def shift(seconds: float) -> None:
        for kind, clock in clocks().items():
            monkeypatch.setitem(database.CLOCKS, kind, text(f"{clock} + ({seconds})"))

    def clocks() -> dict[str, TextClause]:
        return dict(database.CLOCKS)

    return shift


@contextmanager
def migrated(url: str) -> Iterator[Engine]:
    engine = connect(url)
    try:
        migrate(engine)
        yield engine
    finally:
        engine.dispose()


def empty_tables(engine: Engine) -> None:
    """Deletes all rows, also where the connection of a test that failed still holds a lock."""
    names = ", ".join(table.name for table in METADATA.sorted_tables)
    with engine.begin() as connection:
        connection.execute(
            text(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        )
        connection.execute(text(f"TRUNCATE {names} RESTART IDENTITY"))


@contextmanager
def running_server(binaries: Path, folder: Path, account: dict[str, Any]) -> Iterator[None]:
    data = folder / "data"
    common = {**account, "cwd": folder, "env": {"PATH": os.defpath, "LC_ALL": "C"}}
    subprocess.run(  # noqa: S603 - fixed arguments
        [binaries / "initdb", "-D", data, "-U", "difficulty", "-A", "trust", "-E", "UTF8", "-N"],
        check=True,
        capture_output=True,
        **common,
    )
    settings = {
        "listen_addresses": "",
        "unix_socket_directories": folder,
        "max_connections": 200,
        "shared_buffers": "32MB",
        "fsync": "off",
        "full_page_writes": "off",
    }
    options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    with (folder / "log").open("wb") as log:
        server = subprocess.Popen(  # noqa: S603 - fixed arguments
            [binaries / "postgres", "-D", data, *options], stdout=log, stderr=log, **common
        )
    try:
        wait_until_it_answers(server, folder)
        yield
    finally:
        server.terminate()
        try:
            # The first request waits for clients to leave, the next one for nobody.
            server.wait(timeout=2)
        except subprocess.TimeoutExpired:
            server.send_signal(signal.SIGINT)
            server.wait(timeout=30)


def wait_until_it_answers(server: "subprocess.Popen[bytes]", folder: Path) -> None:
    end = time.monotonic() + START_TIMEOUT
    while server.poll() is None and time.monotonic() < end:
        try:
            psycopg.connect(address(folder)).close()
        except psycopg.OperationalError:
            time.sleep(0.1)
        else:
            return
    pytest.fail(f"PostgreSQL did not start: {(folder / 'log').read_text(errors='replace')}")


def address(folder: Path) -> str:
    return f"host={folder} user=difficulty dbname=postgres"


def find_binaries() -> Path | None:
    found = [Path(path).resolve().parent for path in [shutil.which("postgres")] if path]
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in (*found, *installed):
        if (folder / "initdb").exists() and (folder / "postgres").exists():
            return folder
    return None


def other_account() -> dict[str, Any]:
    """Account to start PostgreSQL with: one's own, but never root."""
    if os.getuid() != 0:
        return {}
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known:
            entry = known[name]
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    pytest.skip("PostgreSQL cannot run as root, and there is neither a postgres nor a nobody here")
