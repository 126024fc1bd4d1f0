"""Scores of single samples."""

from pydantic import BaseModel


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


class ScoredSamples(BaseModel):
    """Scores in the order of the samples sent."""

    gaussians: str
    samples: list[ScoredSample]
