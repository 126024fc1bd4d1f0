"""A deleted job leaves no file, however and whenever its deletion ends early."""

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import Engine

from api.jobs.files import (
    delete_finished,
    delete_left_files,
    finish_deletions,
    job_prefix,
    local_folders,
    work_folder,
)
from api.jobs.queue import claim, succeed
from api.jobs.store import Job, SubmitLimits, get_job, jobs_to_delete, submit
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from tests.api.stored_results import stored_result

Finish = Callable[[], Job]


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data")


@pytest.fixture
def artifacts(settings: Settings) -> Artifacts:
    return open_artifacts(settings.artifact_root)


@pytest.fixture
def finish(engine: Engine, artifacts: Artifacts, settings: Settings, tmp_path: Path) -> Finish:
    """Creates a job that has succeeded, with a file in every folder that a job may have."""
    (tmp_path / "scores").write_text("scores")

    def finished() -> Job:
        submit(engine, "owner", {"dataset": {"root": "photos"}}, None, SubmitLimits(100, 3))
        job = claim(engine, "worker", "cpu", 60.0)
        assert job is not None
        artifacts.put(tmp_path / "scores", f"jobs/{job.id}/a1/scores.parquet")
        assert succeed(engine, job, stored_result(f"jobs/{job.id}/a1"))
        for folder in local_folders(settings, job.id):
            (folder / "a1").mkdir(parents=True)
            (folder / "a1" / "file").write_text("1")
        feature = settings.feature_cache_dir / "place" / f"{job.id}-00000.arrow"
        feature.parent.mkdir(parents=True, exist_ok=True)
        feature.write_text("features")
        return job

    return finished


def files_of(settings: Settings) -> set[Path]:
    return {path for path in settings.data_dir.rglob("*") if path.is_file()}


def test_every_file_of_a_deleted_job_goes_and_no_other(
    engine: Engine, settings: Settings, artifacts: Artifacts, finish: Finish
) -> None:
    finish()
    before = files_of(settings)
    job = finish()
    assert len(files_of(settings)) == 2 * len(before)

    assert delete_finished(engine, settings, artifacts, "owner", job.id)

    assert files_of(settings) == before
    assert len(artifacts.list_folders("jobs")) == 1
    assert jobs_to_delete(engine) == []


def test_a_job_of_another_owner_keeps_its_files(
    engine: Engine, settings: Settings, artifacts: Artifacts, finish: Finish
) -> None:
    job = finish()
    before = files_of(settings)

    assert not delete_finished(engine, settings, artifacts, "other", job.id)

    assert files_of(settings) == before
    assert get_job(engine, "owner", job.id) is not None


@pytest.mark.parametrize("failing", range(4))
def test_a_deletion_that_ended_early_is_finished_later(
    engine: Engine,
    settings: Settings,
    artifacts: Artifacts,
    finish: Finish,
    monkeypatch: pytest.MonkeyPatch,
    failing: int,
) -> None:
    job = finish()
    calls = itertools.count()
    remove = shutil.rmtree

    def remove_unless_it_fails(folder: Path) -> None:
        if next(calls) == failing:
            raise OSError("the disk is away")
        remove(folder)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", remove_unless_it_fails)
        assert delete_finished(engine, settings, artifacts, "owner", job.id)

    assert get_job(engine, None, job.id) is None
    assert files_of(settings)

    assert finish_deletions(engine, settings, artifacts) == 1

    assert files_of(settings) == set()
    assert artifacts.list_folders("jobs") == []
    assert jobs_to_delete(engine) == []


@pytest.mark.parametrize("place", range(4))
def test_a_file_made_by_a_request_that_was_late_goes_with_the_next_sweep(
    engine: Engine, settings: Settings, artifacts: Artifacts, finish: Finish, place: int
) -> None:
    kept, job = finish(), finish()
    delete_finished(engine, settings, artifacts, "owner", job.id)
    late = local_folders(settings, job.id)[place]
    late.mkdir(parents=True)
    (late / "thumbnail.jpg").write_text("late")

    assert delete_left_files(engine, settings, artifacts) == 1 + 1  # and the work of the other

    assert not late.exists()
    assert all(folder.exists() for folder in local_folders(settings, kept.id)[1:])


def test_folders_without_a_job_that_needs_them_go(
    engine: Engine, settings: Settings, artifacts: Artifacts, finish: Finish, tmp_path: Path
) -> None:
    done = finish()
    request = {"dataset": {"root": "photos"}}
    waiting, _ = submit(engine, "owner", request, None, SubmitLimits(100, 3))
    for job_id in (waiting.id, "gone"):
        with work_folder(settings.work_dir, job_id, 1):
            pass
    artifacts.put(tmp_path / "scores", "jobs/gone/a1/scores.parquet")

    removed = delete_left_files(engine, settings, artifacts)

    assert removed == 3
    assert [path.name for path in settings.work_dir.iterdir()] == [waiting.id]
    assert artifacts.list_folders("jobs") == [job_prefix(done.id)]
