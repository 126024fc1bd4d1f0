"""Bodies of the routes of a job's results."""

from pydantic import BaseModel, ConfigDict, Field


class ScoreRow(BaseModel):
    """One sample of a score file, with the columns that were computed.

    `docs/score-file.md` has their meaning.
    """

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
    md: float | None = None
    md_agnostic: float | None = None
    rmd: float | None = Field(default=None, description="Larger is harder")
    rmd_std: float | None = None
    rmd_loo: float | None = None
    nearest_label: int | None = None
    nearest_label_name: str | None = None
    label_margin: float | None = Field(
        default=None, description="Above 0, another class fits better"
    )
    percentile: float | None = None
    duplicate_of: str | None = Field(
        default=None, description="Id of the first sample with the same features"
    )
    near_duplicate_of: str | None = Field(
        default=None,
        description="Id of the first sample with nearly the same features, where they were "
        "compared",
    )
    kmeans: float | None = None
    knn: float | None = None
    suspicion: float | None = Field(default=None, description="Log-odds that the label is wrong")
    label_probability: float | None = Field(
        default=None, description="Probability that the label is right"
    )
    suspected_label: int | None = Field(
        default=None, description="The likeliest class other than the label"
    )
    suspected_label_name: str | None = None
    agree: float | None = Field(
        default=None, description="Log-odds against the label, by its tempered posterior"
    )
    loss: float | None = Field(
        default=None, description="Cross-entropy of the label; only in files of `evaluate`"
    )
    doubt: float | None = Field(default=None, description="1 - the confidence; likewise")
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
