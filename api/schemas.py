"""Bodies of the routes of jobs.

Bodies of the routes of marks.

Bodies of the routes of a job's results.

Bodies of the routes about the service itself.
"""

from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from api.storage.tables import State
from difficulty_service.base.contract import Contract, Names
from difficulty_service.options import FIT_ONLY, IMAGES_ONLY, DatasetScoring
from difficulty_service.score_columns import COLUMNS
from difficulty_service.scores.marks import Mark

ListOrder = Literal["doubtful", "hardest", "easiest", "unusual", "random", "file"]
"""Orders in which the samples of a job are listed."""

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
    backbone: str | None = None
    gaussians: str | None = None
    marks: str | None = None
    marks_of: Literal["own", "all"] = "own"

    @property
    def modality(self) -> Literal["image", "text"]:
        """What the samples are."""
        return "image" if self.text_column is None else "text"


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

    @model_validator(mode="after")
    def _has_no_image_options_for_texts(self) -> Self:
        usual = type(self).model_fields
        wrong = [
            name
            for name in IMAGES_ONLY
            if name in usual and getattr(self, name) != usual[name].default
        ]
        if self.text_column is not None and wrong:
            raise ValueError(f"text_column: {' and '.join(wrong)} apply to images only")
        return self

    @model_validator(mode="after")
    def _fits_nothing_to_given_gaussians(self) -> Self:
        usual = type(self).model_fields
        useless = [name for name in FIT_ONLY if getattr(self, name) != usual[name].default]
        if self.gaussians is not None and useless:
            raise ValueError(
                f"gaussians: they are fitted, so {' and '.join(useless)} would change nothing"
            )
        return self


class JobProgress(BaseModel):
    """Progress of a job."""

    done: int = Field(description="Number of samples processed")
    total: int | None = Field(description="Number of samples; null until known")
    bad: int = Field(description="Number of unreadable images")
    rate: float | None = Field(description="Samples per second")
    seconds_left: float | None = Field(description="Seconds until extraction ends, at this rate")


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


class StoredResult(JobResult):
    """What the database keeps of a finished job; the folder is for this service alone."""

    prefix: str
    """Folder of the files of the attempt that succeeded"""


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


MOST_CHANGES = 1000
LARGEST_ROW = 2**53
Name = Annotated[str, Field(min_length=1, max_length=4000)]


class Decision(BaseModel):
    """A mark, with the new class of a sample that is relabelled."""

    model_config = ConfigDict(extra="forbid")

    mark: Mark
    label: Name | None = Field(default=None, description="Name of a class, for relabel")

    @model_validator(mode="after")
    def _has_a_label_to_relabel(self) -> Self:
        if (self.mark is Mark.RELABEL) != (self.label is not None):
            raise ValueError("give a `label` with relabel, and with no other mark")
        return self


class MarkChange(BaseModel):
    """The new mark of one sample."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [
                {"sample_id": "cat/0042.jpg", "decision": {"mark": "relabel", "label": "dog"}}
            ]
        },
    )

    sample_id: Name | None = Field(default=None, description="Id in the score file, or else `row`")
    row: Annotated[int, Field(ge=0, le=LARGEST_ROW)] | None = Field(
        default=None, description="Row in the score file, or else `sample_id`"
    )
    decision: Decision | None = Field(description="Null removes the mark")
    seen: Decision | None = Field(
        default=None,
        description="The mark that the caller knows of: another one is not replaced, but answered "
        "with 409; without this field any mark is replaced",
    )
    order: ListOrder | Literal[""] = Field(
        default="",
        description="Order of the list in which the sample came up; empty where several were "
        "marked at once. What was met in the order `random` tells how many labels are wrong",
    )

    @model_validator(mode="after")
    def _names_one_sample(self) -> Self:
        if (self.sample_id is None) == (self.row is None):
            raise ValueError("give either `sample_id` or `row`")
        return self


class MarkChanges(BaseModel):
    """Changes that are made together, or not at all."""

    model_config = ConfigDict(extra="forbid")

    marks: Annotated[list[MarkChange], Field(min_length=1, max_length=MOST_CHANGES)]


class MarkPublic(BaseModel):
    """A mark of a sample."""

    row: int
    sample_id: str
    mark: Mark
    label: str | None
    order: str
    at: datetime


class MarkCounts(BaseModel):
    """Number of samples with each mark."""

    keep: int
    relabel: int
    drop: int


class MarkPage(BaseModel):
    """Marks in the order of the score file."""

    marks: list[MarkPublic]
    counts: MarkCounts
    next: int | None = Field(description="`after` for the next page; null at the end")


class MarksChanged(BaseModel):
    """Number of samples with each mark, after the change."""

    counts: MarkCounts


def of_column(name: str) -> Any:  # noqa: ANN401 - the default of a field, whatever its type
    """The field of a column that only some score files have, described as on every page."""
    return Field(default=None, description="{0.sentence} Values: {0.values}.".format(COLUMNS[name]))


class ScoreRow(BaseModel):
    """One sample of a score file, with the columns that were computed."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "sample_id": "cat/0042.jpg",
                    "label": 3,
                    "label_name": "cat",
                    "md": 812.4,
                    "md_agnostic": 640.9,
                    "rmd": 171.5,
                    "rmd_loo": 174.0,
                    "nearest_label": 5,
                    "nearest_label_name": "dog",
                    "label_margin": 30.2,
                    "percentile": 0.997,
                    "duplicate_of": None,
                    "thumbnail": "/v1/jobs/01k.../thumbnails/cat%2F0042.jpg",
                }
            ]
        }
    )

    sample_id: str
    label: int
    label_name: str
    md: float | None = of_column("md")
    md_agnostic: float | None = of_column("md_agnostic")
    rmd: float | None = of_column("rmd")
    rmd_std: float | None = of_column("rmd_std")
    rmd_loo: float | None = of_column("rmd_loo")
    nearest_label: int | None = of_column("nearest_label")
    nearest_label_name: str | None = of_column("nearest_label_name")
    label_margin: float | None = of_column("label_margin")
    percentile: float | None = of_column("percentile")
    duplicate_of: str | None = of_column("duplicate_of")
    near_duplicate_of: str | None = of_column("near_duplicate_of")
    image_fault: str | None = of_column("image_fault")
    kmeans: float | None = of_column("kmeans")
    knn: float | None = of_column("knn")
    suspicion: float | None = of_column("suspicion")
    p_wrong: float | None = of_column("p_wrong")
    suggested_label: int | None = of_column("suggested_label")
    suggested_label_name: str | None = of_column("suggested_label_name")
    first_label: int | None = of_column("first_label")
    p_first: float | None = of_column("p_first")
    second_label: int | None = of_column("second_label")
    p_second: float | None = of_column("p_second")
    third_label: int | None = of_column("third_label")
    p_third: float | None = of_column("p_third")
    agree: float | None = of_column("agree")
    mark: str | None = of_column("mark")
    loss: float | None = of_column("loss")
    doubt: float | None = of_column("doubt")
    thumbnail: str = Field(description="Address of a thumbnail")


class ScorePage(BaseModel):
    """A page of the scores of a job."""

    samples: list[ScoreRow]
    matching: int = Field(description="Number of samples with the label, on all pages")
    next: str | None = Field(description="`after` for the next page; null at the end")


class UnreadableImage(BaseModel):
    """An image without a score, and the reason."""

    sample_id: str
    reason: str


class ErrorPage(BaseModel):
    """A page of the unreadable images, in the order of the dataset."""

    errors: list[UnreadableImage]
    total: int
    next: int | None = Field(description="`after` for the next page; null at the end")


class Health(BaseModel):
    """The server is running."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"status": "ok"}]})

    status: Literal["ok"] = "ok"


class Part(BaseModel):
    """Something that the service needs."""

    ready: bool
    detail: str = Field(description="Its condition, and what to do where it is not ready")


class Readiness(BaseModel):
    """Whether jobs can be accepted, kept and run."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "ready": False,
                    "missing": ["workers"],
                    "parts": {
                        "database": {"ready": True, "detail": "answers"},
                        "artifacts": {"ready": True, "detail": "can be read"},
                        "workers": {
                            "ready": False,
                            "detail": "no heartbeat in the last 60 s; run `difficulty worker`",
                        },
                    },
                }
            ]
        }
    )

    ready: bool
    missing: list[str] = Field(description="Names of the parts that are not ready")
    parts: dict[str, Part] = Field(description="database, artifacts, workers")


class BackbonePublic(BaseModel):
    """An encoder that turns images or texts into features."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "name": "clip-vit-b16",
                    "description": "CLIP ViT-B/16 by OpenAI",
                    "feature_dim": 768,
                    "weights": "cached",
                    "default": True,
                    "modality": "image",
                    "size": 224,
                    "parameters": 85.8,
                    "gmacs": 17.6,
                    "licence": "mit",
                }
            ]
        }
    )

    name: str = Field(description="Name for jobs; capitals stand for a name in the library")
    description: str
    feature_dim: int | None = Field(description="Length of its features; null for a whole library")
    weights: str = Field(description="`in the package`, `cached`, `to download`, or `any`")
    default: bool = Field(description="Whether jobs that name no backbone use this one")
    modality: str = Field(description="What it encodes: `image` or `text`")
    size: int | None = Field(description="Side of its square image in pixels; null if not known")
    parameters: float | None = Field(description="Number of parameters in millions")
    gmacs: float | None = Field(description="Multiply-adds for one image, in billions")
    licence: str | None = Field(description="Licence of its weights, as the hub calls it")


class Backbones(BaseModel):
    """The backbones that jobs may use."""

    backbones: list[BackbonePublic]
