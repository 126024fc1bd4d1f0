"""How long a job and each of its stages may take before its process is killed."""

from dataclasses import dataclass

from api.jobs.failures import Failure
from api.settings import Settings
from api.worker.job_messages import Beat, Stage
from difficulty_service.base.wording import list_names
from difficulty_service.settings.options import EncodingOptions

SHOWN = 3

SECONDS_PER_VIEW = 1.0
"""Time that each further view of an image adds to the limit of the image."""


@dataclass(frozen=True)
class TimeLimits:
    """Time limits of one job, in seconds."""

    listing: float
    image: float
    stage: float
    job: float | None = None  # of work in all attempts; None for any


def time_limits(settings: Settings, options: EncodingOptions) -> TimeLimits:
    """The limits of a job; an image of which many views are made may take longer."""
    views = (options.num_views - 1) * SECONDS_PER_VIEW
    return TimeLimits(
        settings.listing_seconds,
        settings.image_seconds + views,
        settings.stage_seconds,
        settings.job_seconds,
    )


def overdue(beat: Beat, age: float, limits: TimeLimits, worked: float = 0.0) -> Failure | None:
    """The failure of a job that has exceeded a limit; None while it is within all of them.

    Args:
        beat: What its process was doing when it was last heard of.
        age: Seconds since then: a process that hangs may be unable to say so.
        limits: Of the job.
        worked: Seconds of work on the job in all its attempts.
    """
    if limits.job is not None and worked > limits.job:
        return Failure(
            "time-limit",
            f"the job took longer than {limits.job:g} s, up to {beat.stage}",
            retry=False,
            remedy="score fewer samples in one job, or raise DIFFICULTY_JOB_SECONDS (a setting of "
            "the operator)",
            field="dataset",
        )
    late = [sample_id for sample_id, seconds in beat.images if seconds + age > limits.image]
    if late:
        return _late_images(late, limits.image)
    if beat.stage == Stage.LISTING and beat.idle + age > limits.listing:
        return Failure(
            "time-limit",
            f"listing the dataset took longer than {limits.listing:g} s",
            retry=False,
            remedy="name fewer files, or files with fewer folders around them, or raise "
            "DIFFICULTY_LISTING_SECONDS (a setting of the operator)",
            field="dataset",
        )
    if beat.stage != Stage.LISTING and beat.idle + age > limits.stage:
        return Failure(
            "time-limit",
            f"{beat.stage} made no progress for {limits.stage:g} s",
            retry=True,
            remedy="raise DIFFICULTY_STAGE_SECONDS (a setting of the operator)",
        )
    return None


def _late_images(sample_ids: list[str], limit: float) -> Failure:
    images = "an image" if len(sample_ids) == 1 else "images"
    return Failure(
        "time-limit",
        f"{images} took longer than {limit:g} s to read: {list_names(sample_ids, SHOWN)}",
        retry=True,  # it may have been the storage; what has been extracted is kept
        remedy="leave it out, or raise DIFFICULTY_IMAGE_SECONDS (a setting of the operator)",
        field="dataset",
    )
