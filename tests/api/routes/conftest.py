"""The application with a database of its own, and a client of it."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine

from api.app import create_app
from api.settings import Settings


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Settings with the root `photos`, which has an empty folder `train`."""
    (tmp_path / "photos" / "train").mkdir(parents=True)
    return Settings(
        data_dir=tmp_path / "data",
        roots={"photos": str(tmp_path / "photos")},
        default_backbone="builtin",
        device="cpu",
        max_queued_jobs=5,
    )


@pytest.fixture
def client(settings: Settings) -> Iterator[TestClient]:
    """A client on this machine, of the application with these settings."""
    with TestClient(create_app(settings), base_url="http://localhost") as client:
        yield client


@pytest.fixture
def engine(client: TestClient) -> Engine:
    """The database of the application."""
    return client.app.state.engine  # type: ignore[attr-defined]


@pytest.fixture
def body() -> dict[str, object]:
    """Body of a request that submits a job."""
    return {"dataset": {"root": "photos", "path": "train"}}
