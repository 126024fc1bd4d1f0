"""Artifacts know their database, and servers and workers of another one refuse to start."""

from concurrent.futures import ThreadPoolExecutor
from multiprocessing.context import ForkServerContext
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Engine

from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.storage.database import connect, migrate
from api.storage.identity import (
    MARKER,
    ArtifactsOfAnother,
    database_id,
    require_own_artifacts,
)
from api.worker.worker import work
from tests.service import client_of


@pytest.fixture
def artifacts(tmp_path: Path) -> Artifacts:
    return open_artifacts(str(tmp_path / "artifacts"))


@pytest.fixture
def other_engine(tmp_path: Path) -> Engine:
    """Another database with all tables."""
    engine = connect(f"sqlite:///{tmp_path / 'other.sqlite'}")
    migrate(engine)
    return engine


def test_processes_that_ask_at_the_same_moment_get_the_same_id(engine: Engine) -> None:
    barrier = Barrier(6)

    def ask(_: int) -> str:
        barrier.wait()
        return database_id(engine)

    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(ask, range(6)))

    assert ids == {database_id(engine)}


def test_artifacts_without_a_mark_become_those_of_the_first_database(
    engine: Engine, artifacts: Artifacts, tmp_path: Path
) -> None:
    require_own_artifacts(engine, artifacts)
    require_own_artifacts(engine, artifacts)

    assert [path.name for path in (tmp_path / "artifacts").iterdir()] == [MARKER]
    assert (tmp_path / "artifacts" / MARKER).read_text() == database_id(engine)


def test_artifacts_of_another_database_are_refused_with_the_remedy(
    engine: Engine, other_engine: Engine, artifacts: Artifacts, tmp_path: Path
) -> None:
    require_own_artifacts(engine, artifacts)

    with pytest.raises(ArtifactsOfAnother, match=r"belong to another .*DIFFICULTY_ARTIFACTS"):
        require_own_artifacts(other_engine, artifacts)

    (tmp_path / "artifacts" / MARKER).unlink()
    require_own_artifacts(other_engine, artifacts)


def test_one_of_two_databases_that_mark_at_the_same_moment_is_refused(
    sqlite_engine: Engine, other_engine: Engine, artifacts: Artifacts
) -> None:
    barrier = Barrier(2)

    def mark(engine: Engine) -> bool:
        database_id(engine)
        barrier.wait()
        try:
            require_own_artifacts(engine, artifacts)
        except ArtifactsOfAnother:
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        accepted = list(pool.map(mark, (sqlite_engine, other_engine)))

    assert sum(accepted) == 1


def test_a_worker_of_another_database_refuses_and_deletes_nothing(
    sqlite_engine: Engine, other_engine: Engine, tmp_path: Path, forkserver: ForkServerContext
) -> None:
    url = sqlite_engine.url.render_as_string(hide_password=False)
    settings = Settings(data_dir=tmp_path, database_url=url, poll=0.02, device="cpu")
    artifacts = open_artifacts(settings.artifact_root)
    require_own_artifacts(other_engine, artifacts)

    looks = iter(range(100))  # at whether to stop, should it not refuse
    with pytest.raises(ArtifactsOfAnother):
        work(settings, lambda: next(looks, None) is None, forkserver)


def test_a_server_of_another_database_refuses_and_deletes_nothing(
    other_engine: Engine, tmp_path: Path
) -> None:
    artifacts = open_artifacts(str(tmp_path / "artifacts"))
    require_own_artifacts(other_engine, artifacts)
    kept = tmp_path / "artifacts" / "jobs" / "one"
    kept.mkdir(parents=True)

    with pytest.raises(ArtifactsOfAnother), client_of(tmp_path):
        pass

    assert kept.exists()
