"""Bodies of the routes of a job's results."""

from datetime import datetime
from typing import Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from difficulty_service.bodies.missing_boxes import MissingResult
from difficulty_service.scores.score_columns import COLUMNS

ColumnKind: TypeAlias = Literal["category", "number", "date", "text"]
"""What the values of a column beside the scores are, and how they are filtered."""


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
    ambiguity: float | None = of_column("ambiguity")
    name_margin: float | None = of_column("name_margin")
    mark: str | None = of_column("mark")
    loss: float | None = of_column("loss")
    doubt: float | None = of_column("doubt")
    aum: float | None = of_column("aum")
    el2n: float | None = of_column("el2n")
    forgetting: float | None = of_column("forgetting")
    incorrectness: float | None = of_column("incorrectness")
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


class TagPublic(BaseModel):
    """What is thought of a tag; null where it is too rare to be judged."""

    tag: str
    given: int = Field(description="Samples with it")
    wrong: float | None = Field(description="Expected number of these that are wrong")
    probably_wrong: int | None = Field(description="Those with a `p_wrong` above 1/2")
    almost_certainly_wrong: int | None = Field(description="Those with a `p_wrong` above 0.95")
    missing: float | None = Field(description="Expected number of other samples that miss it")
    probably_missing: int | None = Field(description="Those with a `p_wrong` above 1/2")
    almost_certainly_missing: int | None = Field(description="Those with a `p_wrong` above 0.95")


class TagList(BaseModel):
    """The tags of a job that judged them, in the order of its classes."""

    tags: list[TagPublic]


class RegionPublic(BaseModel):
    """A region of an image that looks like an object and has no box."""

    image: str = Field(description="Name of the image")
    x: float = Field(description="Left, in the pixels that the annotations go by")
    y: float = Field(description="Top")
    width: float
    height: float
    label: str = Field(description="The class that fits best")
    score: float = Field(description="Larger is more like an object; no probability")
    picture: str | None = Field(
        description="Address of a picture of it, WebP; null where its image could no longer be read"
    )


class MissingPublic(MissingResult):
    """What was searched for missing boxes, and the regions, those most like an object first."""

    found: tuple[RegionPublic, ...]


class Column(BaseModel):
    """A column beside the scores."""

    name: str = Field(description="Its name in conditions such as `is.NAME`")
    kind: ColumnKind


class Table(BaseModel):
    """A table that is attached to a job."""

    name: str
    columns: list[str] = Field(description="Its columns that are shown, by their names in it")
    notes: list[str] = Field(description="What does not match or cannot be shown")
    attached_at: datetime = Field(description="When a table of this name was attached first")


class Columns(BaseModel):
    """The columns beside the scores of a job, and the tables that they are of."""

    columns: list[Column]
    tables: list[Table]
