"""A full disk is named to clients, and to the owners of jobs, and passes once there is space."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from httpx2 import Response

from api.jobs.failures import describe_failure
from api.jobs.queue import claim, succeed
from api.jobs.store import Job
from api.jobs.stored_result import StoredResult
from api.worker.job_observer import Observer
from api.worker.job_runner import run_job
from tests import small_network
from tests.factories import write_image_folder
from tests.service import ServiceClient, client_of

EACH = 12


@pytest.fixture
def client(tmp_path: Path, tiny_disk: Path) -> Iterator[ServiceClient]:
    """A client of the application, whose data is on a tiny disk, and its database is not."""
    photos = write_image_folder(tmp_path / "photos", ("cat", "dog"), EACH, size=(16, 16))
    small_network.make_known()
    database = f"sqlite:///{tmp_path / 'difficulty.sqlite'}"
    settings = {
        "database_url": database,
        "roots": {"photos": str(photos)},
        "default_backbone": small_network.SMALL,
        "min_free_bytes": 0,
    }
    with client_of(tiny_disk, **settings) as client:
        yield client


def fill(disk: Path, left: int = 0) -> Path:
    """Writes a file that takes all space but the last `left` bytes."""
    path = disk / "ballast"
    with path.open("wb", buffering=0) as file:
        while space := os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize - left:
            if space < 0:
                break
            file.write(bytes(min(space, 1 << 20)))
    return path


def claimed(client: ServiceClient) -> Job:
    client.post("/v1/jobs", json={"dataset": {"root": "photos"}, "shrinkage": 0.5})
    job = claim(client.engine, "worker", "cpu", 600.0)
    assert job is not None
    return job


def run(client: ServiceClient, job: Job) -> StoredResult:
    services = client.services
    return run_job(job, services.settings, services.engine, services.artifacts, Observer())


@pytest.mark.slow
@pytest.mark.parametrize("left", [0, 1 << 12, 1 << 14, 1 << 16, 1 << 17])
def test_a_job_fails_by_name_on_a_full_disk_and_can_be_tried_again(
    client: ServiceClient, tiny_disk: Path, left: int
) -> None:
    job = claimed(client)
    ballast = fill(tiny_disk, left)

    with pytest.raises(Exception) as caught:  # noqa: PT011 - its description is what is tested
        run(client, job)
    failure = describe_failure(caught.value, {})
    ballast.unlink()

    assert (failure.type, failure.retry) == ("storage", True)
    assert "no space" in failure.detail
    assert run(client, job).num_scored == 2 * EACH


@pytest.mark.slow
def test_thumbnails_and_single_samples_name_a_full_disk(
    client: ServiceClient, tiny_disk: Path
) -> None:
    job = claimed(client)
    engine = client.engine
    assert succeed(engine, job, run(client, job))

    def ask() -> list[Response]:
        return [
            client.get(f"/v1/jobs/{job.id}/thumbnails/cat/1.png"),
            client.post(f"/v1/gaussians/{job.id}/score", json={"features": [[0.0]]}),
        ]

    ballast = fill(tiny_disk)
    failed = ask()
    ballast.unlink()
    answered = ask()

    for answer in failed:
        assert answer.status_code == 507, answer.text
        assert answer.json()["type"] == "/problems/storage"
        assert "DIFFICULTY_DATA_DIR" in answer.json()["remedy"]
        assert int(answer.headers["Retry-After"]) > 0
    assert [answer.status_code for answer in answered] == [200, 422]  # the vector is too short
