"""A disk with the database, uploads and results that fills up: told before, named, and passed."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from httpx2 import Response
from sqlalchemy import Engine, text
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from api.jobs.queue import claim, fail
from api.settings import Settings
from api.storage.database import connect, write_transaction
from api.storage.space import RESERVE_BYTES, free_bytes, keep_reserve
from difficulty_service.bodies.jobs import JobError
from tests.faults.conftest import TINY_DISK_BYTES
from tests.faults.test_full_disk import fill
from tests.service import ServiceClient, client_of

FLOOR = 32 << 20
JOB = {"dataset": {"root": "photos"}}
UPLOAD = {"format": "zip"}


@pytest.fixture
def client(tmp_path: Path, tiny_disk: Path) -> Iterator[ServiceClient]:
    """A client of the application, with everything on a tiny disk."""
    photos = tmp_path / "photos"
    photos.mkdir()
    with client_of(tiny_disk, roots={"photos": str(photos)}, min_free_bytes=FLOOR) as client:
        yield client


@pytest.fixture
def reckless(tmp_path: Path, tiny_disk: Path) -> Iterator[ServiceClient]:
    """The same without a floor, as where other programs fill the disk at once."""
    photos = tmp_path / "photos"
    photos.mkdir()
    with client_of(tiny_disk, roots={"photos": str(photos)}, min_free_bytes=0) as client:
        yield client


def engine_of(client: ServiceClient) -> Engine:
    return client.engine


def reserve_of(client: ServiceClient) -> Path:
    return Path(f"{engine_of(client).url.database}.reserve")


def finished_job(client: ServiceClient) -> str:
    """A job that has failed; gives its address."""
    address = str(client.post("/v1/jobs", json=JOB).headers["Location"])
    job = claim(engine_of(client), "worker", "cpu", 60.0)
    assert job is not None
    assert fail(engine_of(client), job, JobError(type="any", detail="any"), retry_in=None)
    return address


def fill_database(client: ServiceClient, disk: Path) -> Path:
    """Fills the disk to its last byte, and the log of the database, too."""
    ballast = fill(disk)
    with pytest.raises(OperationalError, match="full"):
        write_for_ever(engine_of(client))
    return ballast


def write_for_ever(engine: Engine) -> None:
    statement = text("INSERT INTO workers VALUES (:id, :device, 0, 0, NULL, 0)")
    for number in count():
        with write_transaction(engine) as connection:
            connection.execute(statement, {"id": f"w{number}", "device": "x" * 4000})


def assert_no_space(answer: Response) -> None:
    assert answer.status_code == 507, answer.text
    assert answer.json()["type"] == "/problems/storage"
    assert "delete" in answer.json()["remedy"]


def test_what_needs_space_is_refused_below_the_floor_and_readiness_tells_of_it(
    client: ServiceClient, tiny_disk: Path
) -> None:
    upload = client.post("/v1/uploads", json=UPLOAD).headers["Location"]
    before = client.get("/readyz").json()["parts"]["space"]
    ballast = fill(tiny_disk, FLOOR // 2)

    refused = [
        client.post("/v1/uploads", json=UPLOAD),
        client.put(upload, content=b"x"),
        client.post("/v1/jobs", json=JOB),
    ]
    during = client.get("/readyz")
    ballast.unlink()

    for answer in refused:
        assert_no_space(answer)
    assert before == {"ready": True, "detail": "at least 32 MiB are free"}
    assert "space" in during.json()["missing"]
    assert "less than 32 MiB" in during.json()["parts"]["space"]["detail"]
    assert client.get("/readyz").json()["parts"]["space"]["ready"]
    assert client.put(upload, content=b"x").json()["received"] == 1
    assert client.post("/v1/jobs", json=JOB).status_code == 202


def test_an_upload_stops_at_the_floor_and_is_resumed_once_there_is_room(
    client: ServiceClient, tiny_disk: Path
) -> None:
    upload = client.post("/v1/uploads", json=UPLOAD).headers["Location"]
    ballast = fill(tiny_disk, FLOOR + (3 << 20))
    part, received = b"x" * (1 << 20), 0

    while (stopped := client.put(f"{upload}?offset={received}", content=part)).is_success:
        received = stopped.json()["received"]
    ballast.unlink()
    resumed = client.put(f"{upload}?offset={received}", content=part)

    assert_no_space(stopped)
    assert stopped.headers["Upload-Offset"] == str(received)
    assert 1 << 20 <= received <= 3 << 20
    assert resumed.json()["received"] == received + len(part)


def test_a_full_disk_of_the_database_is_named_without_a_traceback(
    reckless: ServiceClient, tiny_disk: Path
) -> None:
    upload = reckless.post("/v1/uploads", json=UPLOAD).headers["Location"]
    ballast = fill_database(reckless, tiny_disk)

    with capture_logs() as logs:
        refused = [
            *(reckless.post("/v1/jobs", json=JOB) for _ in range(3)),
            reckless.put(upload, content=b"x" * 10_000),
        ]
    ballast.unlink()

    for answer in refused:
        assert_no_space(answer)
    assert not any("exc_info" in entry for entry in logs)
    assert [entry for entry in logs if entry["event"] == "disk-full"]
    assert reckless.post("/v1/jobs", json=JOB).status_code == 202


def test_jobs_and_uploads_are_deleted_on_a_full_disk(
    reckless: ServiceClient, tiny_disk: Path
) -> None:
    job, upload = finished_job(reckless), reckless.post("/v1/uploads", json=UPLOAD)
    queued = reckless.post("/v1/jobs", json=JOB).headers["Location"]
    address = upload.headers["Location"]
    fill_database(reckless, tiny_disk)

    deleted = [reckless.delete(each) for each in (job, address)]
    cancelled = reckless.delete(queued)

    assert [each.status_code for each in deleted] == [204, 204]
    assert cancelled.json()["state"] == "cancelled"
    assert [reckless.get(each).status_code for each in (job, address)] == [404, 404]


def test_the_reserve_comes_back_once_a_deletion_has_made_room(
    reckless: ServiceClient, tiny_disk: Path
) -> None:
    job, other = finished_job(reckless), finished_job(reckless)
    assert reserve_of(reckless).stat().st_blocks * 512 >= RESERVE_BYTES
    ballast = fill_database(reckless, tiny_disk)

    reckless.delete(job)
    gone = not reserve_of(reckless).exists()
    ballast.unlink()
    reckless.delete(other)

    assert gone
    assert reserve_of(reckless).stat().st_size == RESERVE_BYTES


def test_no_reserve_is_made_where_it_would_fill_the_disk(tiny_disk: Path) -> None:
    engine = connect(f"sqlite:///{tiny_disk}/difficulty.sqlite")
    ballast = fill(tiny_disk, RESERVE_BYTES)

    keep_reserve(engine)
    before = [path.name for path in tiny_disk.iterdir()]
    ballast.unlink()
    keep_reserve(engine)

    assert before == ["ballast"]
    assert [path.name for path in tiny_disk.iterdir()] == ["difficulty.sqlite.reserve"]
    engine.dispose()


def test_the_free_space_is_that_of_the_fullest_disk_even_before_there_are_folders(
    tmp_path: Path, tiny_disk: Path
) -> None:
    elsewhere = {"data_dir": tmp_path / "new", "artifacts": str(tiny_disk / "new" / "folder")}
    database = {"data_dir": tmp_path / "new", "database_url": f"sqlite:///{tiny_disk}/new/x.sqlite"}
    bucket = {"data_dir": tiny_disk, "artifacts": "s3://bucket/folder"}

    sizes = [free_bytes(Settings(**each)) for each in (elsewhere, database, bucket)]

    assert all(0 < size <= TINY_DISK_BYTES for size in sizes)
