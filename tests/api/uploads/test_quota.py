"""What a key keeps is counted by the database and the files, on SQLite and PostgreSQL."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import Engine

from api.http.problems import Problem
from api.jobs.files import count_result, count_results, delete_finished
from api.jobs.queue import claim, succeed
from api.jobs.store import Job, SubmitLimits, get_job, submit
from api.settings import Settings
from api.storage.artifacts import Artifacts, open_artifacts
from api.uploads.quota import Quota, find_usage, quota_of
from api.uploads.store import Upload, advance, complete, create_upload, delete_upload
from tests.api.stored_results import stored_result

MANY = Quota(max_bytes=1000, max_open_uploads=3, feature_bytes=0)


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(data_dir=tmp_path / "data", max_stored_bytes=1024, max_open_uploads=3)


@pytest.fixture
def artifacts(settings: Settings) -> Artifacts:
    return open_artifacts(settings.artifact_root)


def announce(engine: Engine, size: int | None, owner: str = "me") -> Upload:
    return create_upload(engine, owner, "tar", size, MANY)


def finish(engine: Engine, stored_bytes: int | None, owner: str = "me") -> Job:
    """A job that has succeeded, with files of this size."""
    submit(engine, owner, {}, None, SubmitLimits(10, 1))
    job = claim(engine, "worker", "cpu", 60.0)
    assert job is not None
    result = stored_result(f"jobs/{job.id}/a1", stored_bytes=stored_bytes)
    assert succeed(engine, job, result)
    return job


def write(artifacts: Artifacts, tmp_path: Path, job: Job, name: str, size: int) -> None:
    """Writes an artifact of a job."""
    local = tmp_path / "local"
    local.write_bytes(bytes(size))
    artifacts.put(local, f"jobs/{job.id}/a1/{name}")


def test_uploads_results_and_features_are_added_up_for_their_owner_alone(
    engine: Engine, settings: Settings
) -> None:
    for owner, size in (("me", 100), ("other", 300)):
        announce(engine, size, owner)
        job = finish(engine, size // 10, owner)
        folder = settings.feature_cache_dir / owner
        folder.mkdir(parents=True)
        (folder / f"{job.id}-00000.arrow").write_bytes(bytes(size // 100))

    usage = find_usage(engine, settings, "me")

    assert (usage.upload_bytes, usage.result_bytes, usage.feature_bytes) == (100, 10, 1)
    assert (usage.total_bytes, usage.max_bytes) == (111, 1024)
    assert (usage.open_uploads, usage.max_open_uploads) == (1, 3)


def test_an_upload_counts_with_the_larger_of_what_was_announced_and_what_has_arrived(
    engine: Engine, settings: Settings
) -> None:
    announced, unknown = announce(engine, 100), announce(engine, None)
    advance(engine, announced.id, 40)
    advance(engine, unknown.id, 70)
    assert find_usage(engine, settings, "me").upload_bytes == 170

    complete(engine, announced.id, 100, "0" * 64)

    usage = find_usage(engine, settings, "me")
    assert (usage.upload_bytes, usage.open_uploads) == (170, 1)


def test_an_upload_beyond_the_quota_is_refused_with_what_to_delete(engine: Engine) -> None:
    announce(engine, 600)

    with pytest.raises(Problem) as caught:
        announce(engine, 401)

    assert (caught.value.status, caught.value.type) == (507, "quota")
    assert "600 bytes (600 of uploads, 0 of results, 0 of features)" in caught.value.detail
    assert "DELETE /v1/uploads/{upload_id}" in caught.value.remedy
    announce(engine, 400)


def test_too_many_open_uploads_are_refused_until_one_is_deleted(engine: Engine) -> None:
    first, _, _ = (announce(engine, 1) for _ in range(3))

    with pytest.raises(Problem) as caught:
        announce(engine, 1)
    delete_upload(engine, first.id)

    assert (caught.value.status, caught.value.type) == (429, "too-many-uploads")
    announce(engine, 1)


def test_requests_at_the_same_moment_do_not_go_beyond_the_quota(engine: Engine) -> None:
    barrier = Barrier(8)

    def try_it(_: int) -> bool:
        barrier.wait()
        try:
            announce(engine, 400)
        except Problem:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        accepted = list(pool.map(try_it, range(8)))

    assert sum(accepted) == 2


def test_an_upload_of_unknown_size_may_have_what_is_left(engine: Engine) -> None:
    announce(engine, 600)
    upload = announce(engine, None)

    assert advance(engine, upload.id, 100, MANY) == 400
    assert advance(engine, upload.id, 400, MANY) == 400


def test_a_job_is_refused_where_nothing_is_left_and_the_same_one_again_is_not(
    engine: Engine,
) -> None:
    limits = SubmitLimits(10, 1, MANY)
    job, _ = submit(engine, "me", {}, "key", limits)
    announce(engine, 1000)

    with pytest.raises(Problem) as caught:
        submit(engine, "me", {}, None, limits)

    assert caught.value.type == "quota"
    assert submit(engine, "me", {}, "key", limits) == (job, False)
    assert submit(engine, "other", {}, None, limits)[1]


def test_what_is_deleted_counts_no_longer(
    engine: Engine, settings: Settings, artifacts: Artifacts
) -> None:
    job = finish(engine, 500)

    assert delete_finished(engine, settings, artifacts, "me", job.id)

    assert find_usage(engine, settings, "me").total_bytes == 0


def test_results_are_counted_again_by_their_files(
    engine: Engine, settings: Settings, artifacts: Artifacts, tmp_path: Path
) -> None:
    job = finish(engine, 5)
    write(artifacts, tmp_path, job, "scores.parquet", 300)
    write(artifacts, tmp_path, job, "tables/t/joined.arrow", 30)

    count_result(engine, artifacts, job)

    assert find_usage(engine, settings, "me").result_bytes == 330


def test_results_of_earlier_versions_are_counted_once(
    engine: Engine, artifacts: Artifacts, tmp_path: Path
) -> None:
    job = finish(engine, None)
    write(artifacts, tmp_path, job, "scores.parquet", 300)

    numbers = [count_results(engine, artifacts) for _ in range(2)]

    assert numbers == [1, 0]
    stored = get_job(engine, "me", job.id)
    assert stored is not None
    assert stored.stored_bytes == 300


def test_features_of_jobs_that_are_gone_belong_to_nobody(
    engine: Engine, settings: Settings
) -> None:
    folder = settings.feature_cache_dir / "any"
    folder.mkdir(parents=True)
    (folder / f"{'0' * 26}-00000.arrow").write_bytes(bytes(10))

    assert quota_of(engine, settings, "me").feature_bytes == 0
