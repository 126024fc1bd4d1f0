"""A damaged database is named with its file and the remedy, by server and worker alike."""

import os
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError

from api.settings import Settings
from api.storage.database import DatabaseDamaged, connect, migrate, naming_damage, open_database
from api.worker.worker import work

DAMAGES = {
    "its header": lambda content: b"\0" * 100 + content[100:],
    "its pages": lambda content: content[:100] + b"\xff" * (len(content) - 100),
    "its end": lambda content: content[: len(content) // 2],
}


@pytest.fixture(params=DAMAGES)
def damaged(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The file of a database whose bytes are damaged."""
    file = tmp_path / "difficulty.sqlite"
    engine = connect(f"sqlite:///{file}")
    migrate(engine)
    with engine.connect() as connection:
        connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
    engine.dispose()
    file.write_bytes(DAMAGES[request.param](file.read_bytes()))
    return file


@pytest.fixture
def settings(damaged: Path) -> Settings:
    return Settings(
        data_dir=damaged.parent, database_url=f"sqlite:///{damaged}", poll=0.02, heartbeat=0.05
    )


def test_the_server_names_the_damaged_file(damaged: Path, settings: Settings) -> None:
    message = r"is damaged .*backup"
    with pytest.raises(DatabaseDamaged, match=message) as caught, open_database(settings):
        pass

    assert str(damaged) in str(caught.value)


def test_the_worker_ends_with_the_damaged_file_and_the_remedy(
    damaged: Path, settings: Settings
) -> None:
    with pytest.raises(DatabaseDamaged, match=r"is damaged .*backup") as caught:
        work(settings, stop=lambda: False)

    assert str(damaged) in str(caught.value)


def test_the_command_says_so_without_a_traceback(
    damaged: Path, fork_command: Callable[..., ForkServerProcess]
) -> None:
    environment = os.environ | {
        "DIFFICULTY_DATA_DIR": str(damaged.parent),
        "DIFFICULTY_DATABASE_URL": f"sqlite:///{damaged}",
    }
    errors = damaged.with_name("errors")

    ended = fork_command("worker", "--device", "cpu", environment=environment, errors=errors)
    ended.join(120)

    assert ended.exitcode == 1
    assert "is damaged" in errors.read_text()
    assert "Traceback" not in errors.read_text()


def test_other_errors_of_a_database_are_left_as_they_are(sqlite_engine: Engine) -> None:
    with (
        pytest.raises(OperationalError),
        naming_damage(sqlite_engine),
        sqlite_engine.connect() as connection,
    ):
        connection.execute(text("SELECT * FROM nothing"))
