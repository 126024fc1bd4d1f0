"""What a worker and the process that runs its jobs tell each other.

The worker sends a `Job` to begin it and `STOP` to end it at its next check. The process answers
with `Progress` after every batch, with a `Beat` twice a second, and at last with one `Ending`.
"""

from dataclasses import dataclass
from enum import StrEnum

from api.jobs.failures import Failure
from api.jobs.queue import Progress
from api.jobs.stored_result import StoredResult

STOP = "stop"


class Stage(StrEnum):
    """The stages of a job, as its failures name them."""

    STARTING = "starting the job"
    LISTING = "listing the dataset"
    DOWNLOADING = "downloading weights"
    EXTRACTING = "extracting features"
    FITTING = "fitting Gaussians"
    SCORING = "scoring"
    SEARCHING = "looking for missing boxes"
    PUBLISHING = "publishing the results"


@dataclass(frozen=True)
class Beat:
    """What the process of a job is doing."""

    stage: Stage = Stage.STARTING
    idle: float = 0.0  # seconds since its last progress
    images: tuple[tuple[str, float], ...] = ()  # under way, for how many seconds; longest first


@dataclass(frozen=True)
class Succeeded:
    """The job is done; its result is that of `run_job`."""

    result: StoredResult


@dataclass(frozen=True)
class Failed:
    """The attempt failed; with its traceback where the service may be at fault."""

    failure: Failure
    traceback: str | None = None


@dataclass(frozen=True)
class Interrupted:
    """The database did not answer; the reason is the name of the error."""

    reason: str


@dataclass(frozen=True)
class Halted:
    """The job has ended because it was told to."""


Ending = Succeeded | Failed | Interrupted | Halted  # how a job ended in the process that ran it

Message = Progress | Beat | Ending  # what the process sends
