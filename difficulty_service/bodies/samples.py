"""Bodies of the route of single samples."""

from pydantic import BaseModel, ConfigDict, Field

ARROW_STREAM = "application/vnd.apache.arrow.stream"
"""Content type of feature vectors as an Arrow stream."""

Label = str | int


class JsonBody(BaseModel):
    """Feature vectors, or texts for a job of texts, with labels where they are known."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "oneOf": [{"required": ["features"]}, {"required": ["texts"]}],
            "examples": [{"features": [[0.1, 0.2]], "labels": ["cat"]}],
        },
    )

    features: list[list[float]] | None = Field(default=None, min_length=1)
    texts: list[str] | None = Field(default=None, min_length=1)
    labels: list[Label | None] | None = None


class ClassLabel(BaseModel):
    """A class of the dataset of the job."""

    index: int
    name: str


class ScoredSample(BaseModel):
    """Scores of one sample; larger is harder.

    Without a label, the distances are those to the nearest class. The percentile is the fraction of
    the samples of the job that are easier.
    """

    name: str | None = None
    label: ClassLabel | None = None
    nearest_label: ClassLabel | None = None
    md: float | None = None
    md_agnostic: float | None = None
    rmd: float | None = None
    label_margin: float | None = None
    percentile: float | None = None
    error: str | None = None


class SamplesScored(BaseModel):
    """Scores in the order of the samples sent."""

    gaussians: str
    samples: list[ScoredSample]
