"""The application with a database of its own, and a client of it."""

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from httpx2 import Response
from sqlalchemy import Engine

from api.jobs.queue import claim, succeed
from api.jobs.store import Job, SubmitLimits, submit
from api.jobs.stored_result import StoredResult
from api.settings import Settings
from api.storage.artifacts import open_artifacts
from api.storage.keys import Key, create_key
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance
from tests.factories import score_table
from tests.service import ServiceClient, client_of


@pytest.fixture
def client(tmp_path: Path) -> Iterator[ServiceClient]:
    """A client with the root `photos`, which has an empty folder `train`."""
    (tmp_path / "photos" / "train").mkdir(parents=True)
    roots = {"photos": str(tmp_path / "photos")}
    with client_of(tmp_path / "data", roots=roots, max_queued_jobs=5) as client:
        yield client


@pytest.fixture
def settings(client: ServiceClient) -> Settings:
    """The settings of the application."""
    return client.settings


@pytest.fixture
def engine(client: ServiceClient) -> Engine:
    """The database of the application."""
    return client.engine


@pytest.fixture
def body() -> dict[str, object]:
    """Body of a request that submits a job."""
    return {"dataset": {"root": "photos", "path": "train"}}


@pytest.fixture
def result() -> dict[str, object]:
    """Result of a job, as a worker reports it."""
    return {
        "num_samples": 4,
        "num_scored": 4,
        "num_doubtful": 0,
        "num_duplicates": 0,
        "num_bad_images": 0,
        "num_skipped": 0,
        "num_reused": 0,
        "scores_bytes": 3,
        "scores_sha256": "0" * 64,
        "warnings": [],
        "class_names": ["cat", "dog"],
    }


@pytest.fixture
def finished(
    client: ServiceClient, body: dict[str, object], result: dict[str, object]
) -> Callable[[], Job]:
    """Submits a job and acts as its worker; returns the job as claimed."""

    def finish() -> Job:
        client.post("/v1/jobs", json=body)
        job = claim(client.engine, "worker", "cpu", 60.0)
        assert job is not None
        assert succeed(
            client.engine, job, StoredResult.of(result | {"prefix": f"jobs/{job.id}/a1"})
        )
        return job

    return finish


SCOPES = {
    "owner": ["write"],
    "colleague": ["write"],
    "reader": ["read"],
    "stranger": ["write"],
    "overseer": ["read-all", "write"],
    "admin": ["admin"],
}
Call = Callable[..., Response]


@pytest.fixture
def keys(engine: Engine) -> dict[str, tuple[Key, str]]:
    """Keys and their secrets, by name."""
    return {name: create_key(engine, name, scopes) for name, scopes in SCOPES.items()}


@pytest.fixture
def finish(
    keys: dict[str, tuple[Key, str]],
    settings: Settings,
    engine: Engine,
    body: dict[str, object],
    result: dict[str, object],
    tmp_path: Path,
) -> Callable[..., str]:
    """Finishes a job of the owner, whose first two labels are doubtful; gives its id.

    It may apply the marks of an earlier job; further arguments are its provenance.
    """

    def submit_and_finish(before: str | None = None, **known: object) -> str:
        table = score_table(
            [0, 0, 1, 1],
            rmd=[4.0, 3.0, 2.0, 1.0],
            nearest_label=[1, 1, 1, 1],
            label_margin=[2.0, 1.0, -2.0, -3.0],
            percentile=[0.9, 0.6, 0.3, 0.0],
        )
        path = tmp_path / "scores.parquet"
        write_scores(path, table, Provenance.of({"class_names": ["cat", "dog"], **known}))
        wanted = body | {"backbone": "builtin"} | ({} if before is None else {"marks": before})
        submit(engine, keys["owner"][0].id, wanted, None, SubmitLimits(5, 1))
        job = claim(engine, "worker", "cpu", 60.0)
        assert job is not None
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        values = {"prefix": f"jobs/{job.id}/a1", "scores_sha256": digest}
        assert succeed(engine, job, StoredResult.of(result | values))
        open_artifacts(settings.artifact_root).put(path, f"jobs/{job.id}/a1/scores.parquet")
        return job.id

    return submit_and_finish


@pytest.fixture
def job(finish: Callable[..., str]) -> str:
    """Id of a finished job of the owner."""
    return finish()


@pytest.fixture
def call(client: ServiceClient, keys: dict[str, tuple[Key, str]], job: str) -> Call:
    """Sends a request about the job with a key."""

    def send(name: str, method: str, path: str = "", **arguments: object) -> Response:
        headers = {"X-API-Key": keys[name][1]}
        address = path if path.startswith("/") else f"/v1/jobs/{job}{path and '/'}{path}"
        return client.request(method, address, headers=headers, **arguments)  # type: ignore[arg-type]

    return send
