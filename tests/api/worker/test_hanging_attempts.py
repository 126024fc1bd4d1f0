"""An attempt whose process dies, hangs or takes too long.

A process that was frozen by SIGSTOP stands for any that hangs: it answers nothing and nobody.
"""

import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from api.jobs.queue import live_workers
from api.jobs.store import Job
from difficulty_service.bodies.jobs import JobError
from tests.small_network import SLOW

LONG = {"backbone": SLOW, "augment_runs": 8}
"""Fields of a job whose images take long enough to interrupt it."""

Submit = Callable[..., Job]
Attempting = Callable[..., AbstractContextManager[Any]]


@pytest.mark.slow
def test_an_attempt_whose_process_dies_is_repeated_by_the_same_worker(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted(**LONG)

    with attempting() as attempt:
        attempt.wait_for_progress()
        attempt.send(signal.SIGKILL)
    requeued = attempt.stored()

    assert (requeued.state, requeued.attempt) == ("queued", 1)
    assert requeued.error is not None
    assert requeued.error.type == "process-ended"
    assert "by signal 9 (perhaps for lack of memory)" in requeued.error.detail


def test_a_job_whose_process_dies_each_time_fails_with_the_reason(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted(**LONG)

    for _ in range(3):
        with attempting(frozen=True) as attempt:
            attempt.send(signal.SIGABRT)
            attempt.send(signal.SIGCONT)

    failed = attempt.stored()
    assert failed.state == "failed"
    assert failed.error is not None
    assert "by signal 6 while starting the job" in failed.error.detail


def test_a_process_that_does_not_answer_is_killed_once_the_stage_took_too_long(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted()

    with attempting(frozen=True, stage_seconds=0.2) as attempt:
        process = attempt.process.pid

    assert attempt.stored().error == JobError(
        type="time-limit",
        detail="starting the job made no progress for 0.2 s",
        remedy="raise DIFFICULTY_STAGE_SECONDS (a setting of the operator)",
    )
    assert not is_running(process)


@pytest.mark.slow
def test_listing_that_takes_too_long_fails_the_job_at_once(
    submitted: Submit, attempting: Attempting, photos: Path
) -> None:
    for number in range(4000):
        (photos / f"class {number:04d}").mkdir()
    submitted()

    with attempting(listing_seconds=0.01) as attempt:
        pass

    failed = attempt.stored()
    assert failed.state == "failed"
    assert failed.attempt == 1
    assert failed.error is not None
    assert failed.error.detail == "listing the dataset took longer than 0.01 s"
    assert "DIFFICULTY_LISTING_SECONDS" in failed.error.remedy


def test_a_job_that_takes_too_long_is_ended_although_it_makes_progress(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted(**LONG)

    with attempting(job_seconds=0.2) as attempt:
        process = attempt.process.pid

    failed = attempt.stored()
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert failed.error is not None
    assert failed.error.type == "time-limit"
    assert "the job took longer than 0.2 s" in failed.error.detail
    assert "DIFFICULTY_JOB_SECONDS" in failed.error.remedy
    assert not is_running(process)


@pytest.mark.slow
def test_an_image_that_takes_too_long_is_named(
    submitted: Submit, attempting: Attempting, photos: Path
) -> None:
    # Python decodes numbers as text, which takes seconds even for as many as are allowed.
    (photos / "cat" / "slow.ppm").write_bytes(b"P3 1990 2000 255\n" + b"1 " * (3 * 1990 * 2000))
    submitted()

    with attempting(image_seconds=2.0) as attempt:
        pass

    requeued = attempt.stored()
    assert requeued.state == "queued"
    assert requeued.error is not None
    assert requeued.error.detail == "an image took longer than 2 s to read: cat/slow.ppm"
    assert requeued.error.field == "dataset"


@pytest.mark.slow
def test_a_worker_whose_process_does_not_answer_counts_as_dead(
    submitted: Submit, attempting: Attempting
) -> None:
    submitted()

    with attempting(frozen=True, lease=0.5) as attempt:
        while not live_workers(attempt.engine, within=0.5):
            time.sleep(0.01)
        while live_workers(attempt.engine, within=0.5):
            time.sleep(0.01)
        renewed = attempt.stored()
        attempt.send(signal.SIGCONT)

    assert (renewed.state, renewed.attempt) == ("running", 1)
    assert attempt.stored().state == "succeeded"


def is_running(process: int | None) -> bool:
    return process is not None and Path(f"/proc/{process}").exists()
