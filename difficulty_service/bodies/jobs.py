"""Bodies of the routes of jobs."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from difficulty_service.base.contract import Contract, Names
from difficulty_service.bodies.uploads import LONGEST_NAME, NAME_PATTERN
from difficulty_service.dataset_formats import DatasetPreview
from difficulty_service.settings.command_options import NumSearched
from difficulty_service.settings.option_rules import chosen_in, find_clash
from difficulty_service.settings.options import DatasetScoring
from difficulty_service.settings.run import Run

State = Literal["queued", "running", "succeeded", "failed", "cancelled"]
FINAL_STATES = ("succeeded", "failed", "cancelled")


ID_PATTERN = "^[0-9a-hjkmnp-z]{26}$"


BACKBONE_PATTERN = (
    r"^(open_clip:[\w.-]+/[\w.-]+|timm:[\w.-]+|transformers:[\w.-]+(/[\w.-]+)?|[a-z0-9.-]+)$"
)
"""Names only: with more colons or slashes a library could read them as a path of this server."""


EITHER_OR: dict[str, Any] = {
    "oneOf": [
        {"required": ["root"], "not": {"required": ["upload"]}},
        {
            "required": ["upload"],
            "not": {"anyOf": [{"required": ["root"]}, {"required": ["path"]}]},
        },
    ]
}


class JobDataset(BaseModel):
    """The location of the images or texts: below a root of the server, or in an upload."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [{"root": "photos", "path": "train"}, {"upload": "01k..."}],
            **EITHER_OR,
        },
    )

    root: Annotated[str, Field(max_length=100)] = Field(
        default="", description="Name of a root that the operator has configured"
    )
    path: Annotated[str, Field(max_length=2000)] = Field(
        default="",
        description="Path below the root; may have wildcards, empty is the root",
    )
    upload: Annotated[str, Field(max_length=100)] = Field(
        default="", description="Id of a complete upload"
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> Self:
        given = self.model_fields_set
        if ("root" in given) == ("upload" in given) or {"upload", "path"} <= given:
            raise ValueError("give either `root` and `path`, or `upload`")
        return self

    def as_request(self) -> dict[str, str]:
        """The fields that are stored with the job."""
        if "upload" in self.model_fields_set:
            return {"upload": self.upload}
        return {"root": self.root, "path": self.path}


class JobRequest(DatasetScoring):
    """What a job does, as it is stored: a dataset to score, with options."""

    dataset: JobDataset
    name: str | None = None
    backbone: str | None = None
    gaussians: str | None = None
    marks: str | None = None
    marks_of: Literal["own", "all"] = "own"
    missing_boxes: int | None = None

    @property
    def run(self) -> Run:
        """What the job computes, and how, but for what only its operator may choose."""
        values = {name: getattr(self, name) for name in self.model_fields_set}
        return Run.of_options(values, gaussians=self.gaussians, marks=self.marks)

    @property
    def modality(self) -> Literal["image", "text"]:
        """What the samples are."""
        return "image" if self.text_column is None else "text"

    @property
    def fits_gaussians(self) -> bool:
        """Whether the job makes Gaussians of its own."""
        return self.gaussians is None and self.tags is None


class JobCreate(JobRequest):
    """A dataset to score, with options."""

    model_config = ConfigDict(
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "dataset": {"root": "photos", "path": "train"},
                    "backbone": "clip-vit-b16",
                    "scorers": ["rmd", "suspicion"],
                    "limit": 10000,
                }
            ]
        },
    )

    name: Annotated[str, Field(max_length=LONGEST_NAME, pattern=NAME_PATTERN)] | None = Field(
        default=None,
        description="What people call the job; null for the name of its upload, or its path",
    )
    backbone: Annotated[str, Field(max_length=200, pattern=BACKBONE_PATTERN)] | None = Field(
        default=None,
        description="Name from GET /v1/backbones; null is the default for images or for texts",
    )
    gaussians: Annotated[str, Field(pattern=ID_PATTERN)] | None = Field(
        default=None,
        description="Score against the Gaussians of this job instead of fitting new ones",
    )
    marks: Annotated[str, Field(pattern=ID_PATTERN)] | None = Field(
        default=None,
        description="Apply the marks of this job, as they are now: relabelled samples get their "
        "new class, dropped ones are left out, and what was kept or relabelled counts as right",
    )
    marks_of: Literal["own", "all"] = Field(
        default="own",
        description="Whose marks of that job: `own`, or `all` for the merged decisions of its "
        "reviewers",
    )
    missing_boxes: NumSearched | None = Field(
        default=None,
        description="In a dataset of boxes, look for regions that look like an object and have no "
        "box, in this many images that are drawn at random; the time grows with it",
    )

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        clash = find_clash(chosen_in(self))
        if clash is not None:
            raise ValueError(clash.sentence())
        return self


class WeightsDownload(BaseModel):
    """Progress of the download of a backbone's weights."""

    done: int = Field(description="Bytes that have arrived")
    total: int | None = Field(
        description="Bytes of all files; null while it waits for another download of the machine"
    )


class JobProgress(BaseModel):
    """Progress of a job."""

    done: int = Field(description="Number of samples processed")
    total: int | None = Field(
        description="Number of samples, and of windows once missing boxes are looked for; null "
        "until known",
    )
    bad: int = Field(description="Number of unreadable images")
    rate: float | None = Field(description="Samples per second")
    seconds_left: float | None = Field(description="Seconds until extraction ends, at this rate")
    download: WeightsDownload | None = Field(
        default=None, description="While weights are downloaded, as of the last heartbeat"
    )


class JobError(Contract):
    """Why a job failed, or why its previous attempt did."""

    model_config = ConfigDict(extra="forbid")

    type: str = Field(description="Stable name of the kind of failure")
    detail: str = Field(description="What is wrong")
    remedy: str | None = Field(default=None, description="What to do about it")
    field: str | None = Field(default=None, description="Field of the request that is at fault")


class JobResult(Contract):
    """What a finished job answers."""

    model_config = ConfigDict(extra="forbid")

    num_samples: int
    """Samples of the dataset"""
    num_scored: int
    """Samples that have a score"""
    num_doubtful: int
    """Samples that look more like another class than their own"""
    num_duplicates: int
    """Samples with the features of an earlier one"""
    num_bad_images: int
    """Listed at GET /v1/jobs/{id}/errors"""
    num_skipped: int
    """Entries of the dataset that are no samples, such as rows without a label and empty class
    folders; listed beside the unreadable images"""
    num_reused: int = 0
    """Samples whose features an earlier job had extracted"""
    scores_bytes: int
    """Size of the score file"""
    scores_sha256: str
    """Hex SHA-256 of the score file"""
    warnings: Names
    """Warnings for whoever reads the scores, one sentence each"""
    class_names: Names
    """Name of each class index"""


class JobPublic(BaseModel):
    """A job, with its progress and results."""

    id: str
    owner: str = Field(description="Id of the key that submitted it; empty where there are no keys")
    state: State
    cancel_requested: bool
    progress: JobProgress
    attempts: int = Field(description="Number of attempts so far")
    max_attempts: int = Field(
        description="Number of attempts before it fails; grows when a worker stops cleanly"
    )
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    request: dict[str, Any]
    error: JobError | None
    result: JobResult | None
    links: dict[str, str]


class JobPage(BaseModel):
    """Jobs, newest first."""

    jobs: list[JobPublic]
    next: str | None = Field(description="`before` of the next page; null at the end")


class JobEvent(BaseModel):
    """Something that happened to a job; what does not apply is null."""

    id: int = Field(description="Ids increase with time")
    kind: str = Field(description="state, progress or warning")
    at: float = Field(description="Seconds since 1970")
    state: State | None = None
    cancel_requested: bool | None = None
    attempt: int | None = None
    device: str | None = None
    done: int | None = None
    total: int | None = None
    bad: int | None = None
    rate: float | None = None
    download: WeightsDownload | None = None

    @property
    def is_last(self) -> bool:
        """Whether the job has ended."""
        return self.state in FINAL_STATES


class JobEstimate(BaseModel):
    """How long a job would take once it runs; null is what nobody knows yet."""

    reading: DatasetPreview | None = Field(
        description="How the dataset would be read; null where listing it takes too long"
    )
    samples: int | None = Field(description="Null where listing the dataset takes too long")
    passes: int = Field(description="Number of times that the network sees each sample")
    jobs: int = Field(description="Number of recent jobs with this backbone on such a device")
    rate: float | None = Field(description="Median of their passes a second, each job as a whole")
    seconds: float | None
