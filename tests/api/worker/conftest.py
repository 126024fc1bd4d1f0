"""A small dataset, and a bench for workers of tests."""

from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from tests.api.worker.bench import Bench
from tests.factories import write_image_folder


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Forty images in two class folders, in the folder `photos` of a root."""
    folder = tmp_path / "roots" / "photos"
    return write_image_folder(folder, ("bird", "cat"), 20, size=(8, 8), name="{:02d}.png")


@pytest.fixture
def settings(tmp_path: Path, photos: Path, sqlite_url: str) -> Settings:
    """Settings of a fast worker, with the root `pictures`."""
    return Settings(
        roots={"pictures": str(photos.parent)},
        data_dir=tmp_path / "data",
        database_url=sqlite_url,
        device="cpu",
        default_backbone="builtin",
        heartbeat=0.05,
        poll=0.02,
        retry_delay=0.0,
    )


@pytest.fixture
def artifacts(settings: Settings) -> Artifacts:
    """The artifacts of these settings."""
    return open_artifacts(settings.artifact_root)


@pytest.fixture
def bench(
    sqlite_engine: Engine, settings: Settings, photos: Path, forkserver: ForkServerContext
) -> Bench:
    """What a worker works with."""
    return Bench(sqlite_engine, settings, photos, forkserver)
