"""Expired jobs and uploads are deleted with their files, and others are kept."""

from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine, Table

from api.jobs.files import delete_left_files
from api.jobs.queue import claim, succeed
from api.jobs.store import Job, SubmitLimits, get_job, submit
from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.storage.database import write_transaction
from api.storage.tables import JOBS, UPLOADS
from api.uploads.store import create_upload, get_upload, upload_path
from api.worker.retention import (
    delete_expired,
    delete_expired_jobs,
    delete_expired_uploads,
)
from tests.api.stored_results import stored_result

DAY = 86400.0

Finish = Callable[[], Job]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", keep_jobs=10 * DAY, keep_uploads=2 * DAY)


@pytest.fixture
def finished(engine: Engine, artifacts: Artifacts, tmp_path: Path) -> Finish:
    """Creates a job that has succeeded and published a file."""

    def finish() -> Job:
        submit_job(engine, {"root": "photos", "path": ""})
        job = claim(engine, "worker", "cpu", 60.0)
        assert job is not None
        (tmp_path / "scores").write_text("scores")
        artifacts.put(tmp_path / "scores", f"jobs/{job.id}/a1/scores.parquet")
        assert succeed(engine, job, stored_result(f"jobs/{job.id}/a1"))
        return job

    return finish


def submit_job(engine: Engine, dataset: dict[str, str]) -> Job:
    return submit(engine, "", {"dataset": dataset}, None, SubmitLimits(100, 3))[0]


def make_older(engine: Engine, table: Table, row_id: str, column: str, seconds: float) -> None:
    with write_transaction(engine) as connection:
        changed = table.update().where(table.c.id == row_id)
        connection.execute(changed.values({column: table.c[column] - seconds}))


def test_a_job_that_finished_long_ago_goes_with_its_files(
    engine: Engine, settings: Settings, artifacts: Artifacts, finished: Finish
) -> None:
    old, young = finished(), finished()
    make_older(engine, JOBS, old.id, "finished_at", 11 * DAY)
    make_older(engine, JOBS, young.id, "finished_at", 9 * DAY)

    removed = delete_expired_jobs(engine, settings, artifacts)

    assert removed == 1
    assert get_job(engine, None, old.id) is None
    assert get_job(engine, None, young.id) is not None
    assert artifacts.list_folders("jobs") == [f"jobs/{young.id}"]


def test_an_unused_upload_is_deleted(engine: Engine, settings: Settings) -> None:
    old, young = (create_upload(engine, "", "parquet", 4) for _ in range(2))
    for upload in (old, young):
        path = upload_path(settings, upload.id, "parquet")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("data")
    make_older(engine, UPLOADS, old.id, "used_at", 3 * DAY)
    make_older(engine, UPLOADS, young.id, "used_at", 1 * DAY)

    removed = delete_expired_uploads(engine, settings)

    assert removed == 1
    assert get_upload(engine, "", old.id) is None
    assert get_upload(engine, "", young.id) is not None
    assert list(settings.upload_dir.iterdir()) == [upload_path(settings, young.id, "parquet")]


def test_an_upload_stays_as_long_as_a_job_waits_for_it(engine: Engine, settings: Settings) -> None:
    upload = create_upload(engine, "", "parquet", 4)
    submit_job(engine, {"upload": upload.id})
    make_older(engine, UPLOADS, upload.id, "used_at", 3 * DAY)

    removed = delete_expired_uploads(engine, settings)

    assert removed == 0
    assert get_upload(engine, "", upload.id) is not None


def test_a_second_run_finds_nothing_left(
    engine: Engine, settings: Settings, artifacts: Artifacts, finished: Finish
) -> None:
    make_older(engine, JOBS, finished().id, "finished_at", 11 * DAY)
    delete_expired(engine, settings, artifacts)

    again = delete_left_files(engine, settings, artifacts) + delete_expired_jobs(
        engine, settings, artifacts
    )

    assert again == 0
