"""A job that takes longer than it may is noticed, whatever it does."""

import pytest

from api.settings import Settings
from api.worker.job_messages import Beat, Stage
from api.worker.time_limits import TimeLimits, overdue, time_limits
from difficulty_service.settings.options import EncodingOptions

LIMITS = TimeLimits(listing=600.0, image=30.0, stage=3600.0)


@pytest.mark.parametrize(
    ("beat", "age"),
    [
        (Beat(Stage.LISTING, idle=599.0), 0.5),
        (Beat(Stage.FITTING, idle=3599.0), 0.5),
        (Beat(Stage.EXTRACTING, images=(("a.png", 29.0), ("b.png", 28.0))), 0.5),
    ],
)
def test_a_job_within_its_limits_goes_on(beat: Beat, age: float) -> None:
    assert overdue(beat, age, LIMITS) is None


@pytest.mark.parametrize(("idle", "age"), [(601.0, 0.0), (1.0, 600.0)])
def test_listing_that_takes_too_long_is_not_tried_again(idle: float, age: float) -> None:
    failure = overdue(Beat(Stage.LISTING, idle), age, LIMITS)

    assert failure is not None
    assert (failure.type, failure.retry) == ("time-limit", False)
    assert failure.detail == "listing the dataset took longer than 600 s"


def test_images_that_take_too_long_are_named_and_others_are_not() -> None:
    beat = Beat(Stage.EXTRACTING, images=(("a.png", 31.0), ("b.png", 30.5), ("c.png", 1.0)))

    failure = overdue(beat, 0.0, LIMITS)

    assert failure is not None
    assert failure.detail == "images took longer than 30 s to read: a.png, b.png"
    assert "DIFFICULTY_IMAGE_SECONDS" in (failure.remedy or "")


def test_a_process_that_does_not_answer_while_it_reads_an_image_is_overdue() -> None:
    beat = Beat(Stage.EXTRACTING, images=(("a.png", 0.1),))

    failure = overdue(beat, 30.0, LIMITS)

    assert failure is not None
    assert failure.detail == "an image took longer than 30 s to read: a.png"


def test_a_stage_without_progress_is_tried_again() -> None:
    failure = overdue(Beat(Stage.SCORING, idle=3601.0), 0.0, LIMITS)

    assert failure is not None
    assert failure.retry
    assert failure.detail == "scoring made no progress for 3600 s"


def test_a_job_that_took_too_long_in_all_its_attempts_is_not_tried_again() -> None:
    limits = TimeLimits(listing=600.0, image=30.0, stage=3600.0, job=7200.0)

    failure = overdue(Beat(Stage.SCORING), 0.0, limits, worked=7201.0)

    assert failure is not None
    assert (failure.type, failure.retry) == ("time-limit", False)
    assert failure.detail == "the job took longer than 7200 s, up to scoring"
    assert overdue(Beat(Stage.SCORING), 0.0, limits, worked=7199.0) is None


def test_a_job_may_take_any_time_unless_the_operator_says_otherwise() -> None:
    limits = time_limits(Settings(), EncodingOptions())

    assert overdue(Beat(Stage.SCORING), 0.0, limits, worked=1e9) is None


def test_an_image_of_which_many_views_are_made_may_take_longer() -> None:
    assert views_limit(0) == 30.0
    assert views_limit(20) == 49.0


def views_limit(augment_runs: int) -> float:
    return time_limits(
        Settings(image_seconds=30.0), EncodingOptions(augment_runs=augment_runs)
    ).image
