"""A worker ends every job that it claims, whatever fails."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.context import ForkServerProcess
from pathlib import Path

import pytest
from sqlalchemy import Engine
from sqlalchemy.exc import OperationalError
from structlog.testing import capture_logs

from api.settings import Settings
from api.storage.artifacts import Artifacts
from api.storage.identity import require_own_artifacts
from tests.api.worker.bench import Bench, wait_for_progress
from tests.faults.conftest import mounted
from tests.small_network import SLOW

NUM_IMAGES = 40
DISK_BYTES = 64 << 20

StartWorker = Callable[..., ForkServerProcess]


def test_a_submitted_job_gets_its_scores_and_leaves_nothing_under_way(bench: Bench) -> None:
    job = bench.submit()

    with bench.working():
        done = bench.wait_for(job, "succeeded")

    assert len(bench.table(done.result)) == done.total == done.done == NUM_IMAGES
    assert bench.files_under_way() == []


@pytest.mark.slow
def test_a_job_waits_for_space_on_the_disk_and_runs_at_its_first_attempt_once_there_is(
    bench: Bench, tmp_path: Path
) -> None:
    job, disk = bench.submit(), tmp_path / "disk"
    disk.mkdir()
    with mounted(disk, DISK_BYTES) as is_mounted:
        if not is_mounted:
            pytest.skip("mounting a file system is forbidden here")
        (disk / "ballast").write_bytes(bytes(DISK_BYTES // 2))
        floor = {"data_dir": disk, "min_free_bytes": DISK_BYTES * 3 // 4}
        with capture_logs() as logs, bench.with_settings(**floor).working():
            while not any(entry["event"] == "disk-full" for entry in logs):
                time.sleep(0.01)
            waiting = bench.wait_for(job, "queued")
            (disk / "ballast").unlink()
            done = bench.wait_for(job, "succeeded")

    assert waiting.attempt == 0
    assert done.attempt == 1
    assert [entry["event"] for entry in logs].count("disk-full") == 1


@pytest.mark.slow
def test_what_earlier_attempts_published_goes_when_one_succeeds(
    bench: Bench, tmp_path: Path
) -> None:
    job = bench.submit()
    (tmp_path / "leftover").write_text("of an attempt that was killed")
    bench.artifacts.put(tmp_path / "leftover", f"jobs/{job.id}/a7/scores.parquet")

    with bench.working():
        bench.wait_for(job, "succeeded")

    assert bench.artifacts.list_folders(f"jobs/{job.id}") == [f"jobs/{job.id}/a1"]


def test_what_the_service_may_be_at_fault_for_is_logged_once_by_the_worker(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    job = bench.submit()
    bench.settings.work_dir.parent.mkdir(parents=True)
    bench.settings.work_dir.write_text("no folder")

    with capture_logs() as events, bench.working():
        failed = bench.wait_for(job, "failed")

    reported = [event for event in events if event["event"] == "attempt-failed"]
    assert [event["job"] for event in reported] == [job.id] * failed.attempt
    assert all(event["type"] == "storage" for event in reported)
    assert all(event["exception"].startswith("Traceback") for event in reported)
    # A job that was cancelled ends as it likes: its process does not know that, and says nothing.
    assert "Traceback" not in capfd.readouterr().err


def test_a_job_that_can_never_succeed_fails_once_with_the_reason(
    bench: Bench, tmp_path: Path
) -> None:
    job = bench.submit(dataset={"root": "pictures", "path": "none"})

    with bench.working():
        failed = bench.wait_for(job, "failed")

    assert failed.attempt == 1
    assert failed.error is not None
    assert failed.error.type == "dataset-error"
    assert "pictures/none" in failed.error.detail
    assert str(tmp_path) not in repr(failed.error)
    assert bench.files_under_way() == []


@pytest.mark.slow
def test_storage_that_fails_for_a_while_costs_attempts_and_not_the_job(bench: Bench) -> None:
    job = bench.submit()
    in_the_way = Path(bench.settings.artifact_root) / "jobs"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a folder must be")

    with bench.with_settings(retry_delay=0.3).working():
        while bench.stored(job).error is None:
            time.sleep(0.01)
        in_the_way.unlink()
        done = bench.wait_for(job, "succeeded")

    assert done.attempt > 1
    assert done.error is None


@pytest.mark.slow
def test_storage_that_fails_for_good_ends_the_job_after_all_attempts(bench: Bench) -> None:
    job = bench.submit()
    in_the_way = Path(bench.settings.artifact_root) / "jobs"
    in_the_way.parent.mkdir(parents=True)
    in_the_way.write_text("a file where a folder must be")

    with bench.working():
        failed = bench.wait_for(job, "failed")

    assert failed.attempt == failed.max_attempts == 3
    assert failed.error is not None
    assert failed.error.type == "storage"


def test_an_idle_worker_stops_when_told_to(bench: Bench) -> None:
    with bench.working() as worker:
        assert worker.is_alive()

    assert not worker.is_alive()


@pytest.mark.slow
def test_only_the_process_of_the_jobs_loads_torch() -> None:
    program = "import sys; import api.worker.worker; sys.exit('torch' in sys.modules)"

    subprocess.run([sys.executable, "-c", program], check=True)  # noqa: S603 - our own program


def test_a_worker_waits_for_the_tables(bench: Bench, tmp_path: Path) -> None:
    elsewhere = bench.with_settings(database_url=None, data_dir=tmp_path / "not-migrated")

    with elsewhere.working() as worker:
        time.sleep(0.1)
        assert worker.is_alive()


@pytest.mark.slow
def test_a_worker_waits_for_a_database_that_restarts_while_it_looks_whose_artifacts_it_has(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, outages = bench.submit(), iter([OperationalError("SELECT", {}, ConnectionError())] * 2)

    def answers_at_last(engine: Engine, artifacts: Artifacts) -> None:
        if (error := next(outages, None)) is not None:
            raise error
        require_own_artifacts(engine, artifacts)

    monkeypatch.setattr("api.worker.worker.require_own_artifacts", answers_at_last)

    with bench.working():
        done = bench.wait_for(job, "succeeded")

    assert done.attempt == 1
    assert list(outages) == []


@pytest.mark.slow
def test_the_first_signal_lets_the_job_finish(bench: Bench, start_worker: StartWorker) -> None:
    job = bench.submit(backbone=SLOW, augment_runs=8)

    process = start_worker()
    wait_for_progress(bench.engine, job)
    process.terminate()
    process.join(60)

    assert process.exitcode == 0
    assert bench.wait_for(job, "succeeded").attempt == 1


@pytest.mark.slow
def test_the_second_signal_ends_the_process_at_once(
    bench: Bench, start_worker: StartWorker
) -> None:
    job = bench.submit(backbone=SLOW, augment_runs=50)

    process = start_worker()
    wait_for_progress(bench.engine, job)
    while process.is_alive():  # two signals at the same moment are one
        with suppress(ProcessLookupError):
            os.kill(process.pid or 0, signal.SIGINT)
        process.join(0.2)

    assert process.exitcode == 128 + signal.SIGINT
    assert bench.stored(job).state == "running"


def test_a_pattern_that_no_file_matches_fails_and_the_next_job_runs(bench: Bench) -> None:
    # As a job that was submitted before such patterns were refused.
    hostile = bench.submit(dataset={"root": "pictures", "path": "**/" * 100 + "*.parquet"})
    job = bench.submit()

    with bench.working():
        failed = bench.wait_for(hostile, "failed")
        bench.wait_for(job, "succeeded")

    assert failed.error is not None
    assert "100 times `**`" in failed.error.detail


@pytest.mark.slow
def test_a_signal_ends_a_worker_whose_job_hangs_within_the_grace_period(
    bench: Bench, start_worker: StartWorker
) -> None:
    job = bench.submit(backbone="builtin", augment_runs=100)

    process = start_worker(forks=False, DIFFICULTY_GRACE="1")
    wait_for_progress(bench.engine, job)
    child = child_of(process)
    os.kill(child, signal.SIGSTOP)
    process.terminate()
    process.join(30)

    assert process.exitcode == 0
    assert bench.stored(job).state == "queued"
    wait_until_gone(child)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["second signal", "kill"])
def test_nothing_is_left_of_a_worker_that_ends_at_once_while_its_job_hangs(
    bench: Bench, start_worker: StartWorker, end: str
) -> None:
    job = bench.submit(backbone="builtin", augment_runs=100)

    process = start_worker(forks=False)
    wait_for_progress(bench.engine, job)
    child = child_of(process)
    os.kill(child, signal.SIGSTOP)
    if end == "kill":
        process.kill()
    while process.is_alive():
        process.terminate()
        process.join(0.2)

    wait_until_gone(child)


def child_of(worker: ForkServerProcess) -> int:
    """Process id of the process that runs the jobs of a worker; it leads a session."""
    children = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
    (leader,) = [int(child) for child in children if os.getsid(int(child)) == int(child)]
    return leader


def wait_until_gone(process: int) -> None:
    status = Path(f"/proc/{process}/stat")
    with suppress(FileNotFoundError):
        while status.read_text().rpartition(")")[2].split()[0] != "Z":
            time.sleep(0.01)


@pytest.fixture
def start_worker(fork_command: Callable[..., ForkServerProcess], settings: Settings) -> StartWorker:
    """Starts `difficulty worker` as a process of its own.

    Only one that does not fork has the process of its jobs as its child.
    """
    environment = os.environ | {
        "DIFFICULTY_ROOTS": json.dumps(settings.roots),
        "DIFFICULTY_DATA_DIR": str(settings.data_dir),
        "DIFFICULTY_DATABASE_URL": settings.resolved_database_url.get_secret_value(),
        "DIFFICULTY_DEVICE": "cpu",
        "DIFFICULTY_HEARTBEAT": "0.05",
    }
    return lambda forks=True, **more: fork_command(
        "worker", environment=environment | more, forks=forks
    )
