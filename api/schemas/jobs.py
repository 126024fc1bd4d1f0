"""Bodies of the routes of jobs."""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.storage.tables import State

LARGEST_SEED = 2**31 - 1
MOST_SAMPLES = 10**12
MOST_RUNS = 64
ID_PATTERN = "^[0-9a-hjkmnp-z]{26}$"
BACKBONE_PATTERN = (
    r"^(open_clip:[\w.-]+/[\w.-]+|timm:[\w.-]+|transformers:[\w.-]+(/[\w.-]+)?|[a-z0-9.-]+)$"
)
"""Names only: with more colons or slashes a library could read them as a path of this server."""

Column = Annotated[str, Field(min_length=1, max_length=500)]
Scorer = Literal["rmd", "kmeans", "knn", "suspicion", "agree"]
Shrinkage = Literal["auto", "none", "ledoit-wolf", "oas", "leave-one-out"]

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


class JobCreate(BaseModel):
    """A dataset to score, with options."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={
            "examples": [
                {
                    "dataset": {"root": "photos", "path": "train"},
                    "backbone": "clip-vit-b16",
                    "scorers": ["rmd", "kmeans"],
                    "augment_runs": 4,
                }
            ]
        },
    )

    dataset: JobDataset
    split: Column | None = Field(default=None, description="Sub-folder or named split")
    image_column: Column | None = Field(
        default=None, description="Column of a table with image bytes or paths; null detects it"
    )
    text_column: Column | None = Field(
        default=None,
        description="Column of a table whose texts are the samples, in place of images",
    )
    label_column: Column | None = Field(
        default=None, description="Column of a table with labels; null detects it"
    )
    id_column: Column | None = Field(
        default=None,
        description="Column of a table with sample ids; null uses unique paths, else file#row",
    )
    limit: Annotated[int, Field(ge=1, le=MOST_SAMPLES)] | None = Field(
        default=None, description="Score this many samples, evenly spaced over the dataset"
    )
    backbone: Annotated[str, Field(max_length=200, pattern=BACKBONE_PATTERN)] | None = Field(
        default=None,
        description="Name from GET /v1/backbones; null is the default for images or for texts",
    )
    scorers: Annotated[
        list[Scorer],
        Field(min_length=1, max_length=3, json_schema_extra={"uniqueItems": True}),
    ] = Field(default=["rmd"], description="`rmd` is always computed")
    flip: bool = Field(
        default=False,
        description="Score the mean features of each image and of its mirror image, for twice the "
        "time of the network",
    )
    augment_runs: int = Field(
        default=0, ge=0, le=MOST_RUNS, description="Randomly augmented passes; 0 for one plain pass"
    )
    seed: int = Field(default=0, ge=0, le=LARGEST_SEED, description="Seed of augmentation, K-means")
    shrinkage: Shrinkage | Annotated[float, Field(ge=0, le=1)] = Field(
        default="auto", description="Shrinkage of the covariance: a rule or an intensity"
    )
    gaussians: Annotated[str, Field(pattern=ID_PATTERN)] | None = Field(
        default=None,
        description="Score against the Gaussians of this job instead of fitting new ones",
    )
    marks: Annotated[str, Field(pattern=ID_PATTERN)] | None = Field(
        default=None,
        description="Apply the marks of this job, as they are now: relabelled samples get their "
        "new class, dropped ones are left out",
    )
    on_error: Literal["skip", "stop"] = Field(
        default="skip", description="What to do with an image that cannot be read"
    )

    @model_validator(mode="after")
    def _has_no_image_options_for_texts(self) -> Self:
        given = (self.image_column is not None, self.flip, self.augment_runs > 0)
        names = ("image_column", "flip", "augment_runs")
        wrong = [name for name, is_given in zip(names, given, strict=True) if is_given]
        if self.text_column is not None and wrong:
            raise ValueError(f"text_column: {' and '.join(wrong)} apply to images only")
        return self

    @property
    def modality(self) -> Literal["image", "text"]:
        """What the samples are."""
        return "image" if self.text_column is None else "text"

    @model_validator(mode="after")
    def _names_each_scorer_once(self) -> Self:
        if len(set(self.scorers)) < len(self.scorers):
            raise ValueError("scorers: each at most once")
        return self


class JobProgress(BaseModel):
    """Progress of a job."""

    done: int = Field(description="Number of samples processed")
    total: int | None = Field(description="Number of samples; null until known")
    bad: int = Field(description="Number of unreadable images")
    rate: float | None = Field(description="Samples per second")
    seconds_left: float | None = Field(description="Seconds until extraction ends, at this rate")


class JobError(BaseModel):
    """Why a job failed, or why its previous attempt did."""

    type: str = Field(description="Stable name of the kind of failure")
    detail: str = Field(description="What is wrong")
    remedy: str | None = Field(default=None, description="What to do about it")
    field: str | None = Field(default=None, description="Field of the request that is at fault")


class JobResult(BaseModel):
    """The result of a job."""

    num_samples: int
    num_scored: int
    num_doubtful: int = Field(
        description="Samples that look more like another class than their own"
    )
    num_duplicates: int = Field(description="Samples with the features of an earlier one")
    num_bad_images: int = Field(description="Listed at GET /v1/jobs/{id}/errors")
    num_skipped: int = Field(
        description="Entries of the dataset that are no samples, such as rows without a label and "
        "empty class folders; listed beside the unreadable images",
    )
    scores_bytes: int
    scores_sha256: str
    warnings: list[str]
    class_names: list[str]


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
