"""A worker whose GPU fails for good ends, so that no later job fails as well.

No GPU is needed: `Fragile` raises what PyTorch raises, and from then on the process refuses to
compute on a GPU.
"""

import json
import os
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

import pytest
from structlog.testing import capture_logs

from api.jobs.queue import live_workers
from api.worker.processes import running_workers
from difficulty_service.bodies.jobs import JobError
from tests.api.worker.bench import Bench
from tests.small_network import FRAGILE, GPU_FAILURE

FAILED = JobError(type="device-error", detail=f"device 'cuda' failed: {GPU_FAILURE}")


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Has the GPU of processes that start from now on fail."""
    monkeypatch.setenv("GPU_FAILS", "1")
    return monkeypatch


def run_worker(
    bench: Bench, fork_command: Callable[..., ForkServerProcess], *options: str
) -> int | None:
    """Runs `difficulty worker` until it ends by itself; its exit code."""
    settings = {
        "DIFFICULTY_ROOTS": json.dumps(bench.settings.roots),
        "DIFFICULTY_DATA_DIR": str(bench.settings.data_dir),
        "DIFFICULTY_DATABASE_URL": bench.settings.resolved_database_url.get_secret_value(),
        "DIFFICULTY_DEVICE": "auto",
        "DIFFICULTY_HEARTBEAT": "0.05",
        "DIFFICULTY_RETRY_DELAY": "0",
    }
    process = fork_command("worker", *options, environment=os.environ | settings)
    process.join(60)
    return process.exitcode


@pytest.mark.slow
def test_a_worker_whose_gpu_fails_ends_and_the_next_one_finishes_its_job(
    bench: Bench,
    fork_command: Callable[..., ForkServerProcess],
    failing: pytest.MonkeyPatch,
) -> None:
    job, other = bench.submit(backbone=FRAGILE), bench.submit()

    exit_code = run_worker(bench, fork_command)
    requeued, untouched = bench.stored(job), bench.stored(other)
    alive = live_workers(bench.engine, within=60.0)
    failing.delenv("GPU_FAILS")
    again = run_worker(bench, fork_command, "--once")

    assert (exit_code, again) == (1, 0)
    assert (requeued.state, requeued.attempt, requeued.error) == ("queued", 1, FAILED)
    assert (untouched.state, untouched.attempt) == ("queued", 0)
    assert alive == []
    assert bench.wait_for(job, "succeeded").attempt == 2
    assert bench.wait_for(other, "succeeded").attempt == 1


@pytest.mark.slow
@pytest.mark.usefixtures("failing")
def test_a_worker_beside_the_server_is_started_again_until_the_job_has_had_its_attempts(
    bench: Bench,
) -> None:
    job = bench.submit(backbone=FRAGILE)

    with (
        capture_logs() as logs,
        running_workers(bench.with_settings(device="auto").settings, 1),
    ):
        failed = bench.wait_for(job, "failed")

    assert failed.attempt == failed.max_attempts == 3
    assert failed.error == FAILED
    died = [entry["exit_code"] for entry in logs if entry["event"] == "worker-died"]
    assert died[:2] == [1, 1]


@pytest.mark.slow
def test_a_device_that_is_not_there_ends_the_worker_and_not_the_job(
    bench: Bench, fork_command: Callable[..., ForkServerProcess]
) -> None:
    job = bench.submit()

    exit_code = run_worker(bench, fork_command, "--device", "cuda:99")

    requeued = bench.stored(job)
    assert exit_code == 1
    assert (requeued.state, requeued.attempt) == ("queued", 1)
    assert requeued.error is not None
    assert requeued.error.detail.startswith("device 'cuda:99' cannot be used here: ")
