"""An attempt whose process dies, hangs or takes too long.

A process that was frozen by SIGSTOP stands for any that hangs: it answers nothing and nobody.
"""

import signal
import time

import pytest

from api.jobs.queue import live_workers
from difficulty_service.bodies.jobs import JobError
from tests.api.worker.bench import LONG, Bench, is_running


@pytest.mark.slow
def test_an_attempt_whose_process_dies_is_repeated_by_the_same_worker(bench: Bench) -> None:
    bench.submit(**LONG)

    with bench.attempting() as attempt:
        attempt.wait_for_progress()
        attempt.send(signal.SIGKILL)
    requeued = attempt.stored()

    assert (requeued.state, requeued.attempt) == ("queued", 1)
    assert requeued.error is not None
    assert requeued.error.type == "process-ended"
    assert "by signal 9 (perhaps for lack of memory)" in requeued.error.detail


def test_a_job_whose_process_dies_each_time_fails_with_the_reason(bench: Bench) -> None:
    bench.submit(**LONG)

    for _ in range(3):
        with bench.attempting(frozen=True) as attempt:
            attempt.send(signal.SIGABRT)
            attempt.send(signal.SIGCONT)

    failed = attempt.stored()
    assert failed.state == "failed"
    assert failed.error is not None
    assert "by signal 6 while starting the job" in failed.error.detail


def test_a_process_that_does_not_answer_is_killed_once_the_stage_took_too_long(
    bench: Bench,
) -> None:
    bench.submit()

    with bench.attempting(frozen=True, stage_seconds=0.2) as attempt:
        process = attempt.process.pid

    assert attempt.stored().error == JobError(
        type="time-limit",
        detail="starting the job made no progress for 0.2 s",
        remedy="raise DIFFICULTY_STAGE_SECONDS (a setting of the operator)",
    )
    assert not is_running(process)


@pytest.mark.slow
def test_listing_that_takes_too_long_fails_the_job_at_once(bench: Bench) -> None:
    for number in range(4000):
        (bench.photos / f"class {number:04d}").mkdir()
    bench.submit()

    with bench.attempting(listing_seconds=0.01) as attempt:
        pass

    failed = attempt.stored()
    assert failed.state == "failed"
    assert failed.attempt == 1
    assert failed.error is not None
    assert failed.error.detail == "listing the dataset took longer than 0.01 s"
    assert "DIFFICULTY_LISTING_SECONDS" in failed.error.remedy


def test_a_job_that_takes_too_long_is_ended_although_it_makes_progress(bench: Bench) -> None:
    bench.submit(**LONG)

    with bench.attempting(job_seconds=0.2) as attempt:
        process = attempt.process.pid

    failed = attempt.stored()
    assert (failed.state, failed.attempt) == ("failed", 1)
    assert failed.error is not None
    assert failed.error.type == "time-limit"
    assert "the job took longer than 0.2 s" in failed.error.detail
    assert "DIFFICULTY_JOB_SECONDS" in failed.error.remedy
    assert not is_running(process)


@pytest.mark.slow
def test_an_image_that_takes_too_long_is_named(bench: Bench) -> None:
    # Python decodes numbers as text, which takes seconds even for as many as are allowed.
    (bench.photos / "cat" / "slow.ppm").write_bytes(
        b"P3 1990 2000 255\n" + b"1 " * (3 * 1990 * 2000)
    )
    bench.submit()

    with bench.attempting(image_seconds=2.0) as attempt:
        pass

    requeued = attempt.stored()
    assert requeued.state == "queued"
    assert requeued.error is not None
    assert requeued.error.detail == "an image took longer than 2 s to read: cat/slow.ppm"
    assert requeued.error.field == "dataset"


@pytest.mark.slow
def test_a_worker_whose_process_does_not_answer_counts_as_dead(bench: Bench) -> None:
    bench.submit()

    with bench.attempting(frozen=True, lease=0.5) as attempt:
        while not live_workers(attempt.engine, within=0.5):
            time.sleep(0.01)
        while live_workers(attempt.engine, within=0.5):
            time.sleep(0.01)
        renewed = attempt.stored()
        attempt.send(signal.SIGCONT)

    assert (renewed.state, renewed.attempt) == ("running", 1)
    assert attempt.stored().state == "succeeded"
