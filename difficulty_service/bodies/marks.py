"""Bodies of the routes of marks."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from difficulty_service.marks.mark_kinds import MARK_KINDS, Mark

ListOrder = Literal["doubtful", "suspicion", "hardest", "easiest", "unusual", "random", "file"]
"""Orders in which the samples of a job are listed."""


MOST_CHANGES = 1000


LARGEST_ROW = 2**53


Name = Annotated[str, Field(min_length=1, max_length=4000)]


_WITH_CLASS = " or ".join(mark for mark, kind in MARK_KINDS.items() if kind.needs_class)


class Decision(BaseModel):
    """A mark, with the new class of a sample that is relabelled."""

    model_config = ConfigDict(extra="forbid")

    mark: Mark
    label: Name | None = Field(default=None, description=f"Name of a class, for {_WITH_CLASS}")

    @model_validator(mode="after")
    def _has_a_label_to_relabel(self) -> Self:
        if self.mark.kind.needs_class != (self.label is not None):
            raise ValueError(f"give a `label` with {_WITH_CLASS}, and with no other mark")
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
    given_label: str | None = Field(description="Class of the sample when it was marked")
    content: str | None = Field(description="SHA-256 of the image or text when it was marked")
    order: str
    round: int = Field(description="Number of the scores on which it was marked, from 1")
    at: datetime


class MarkCounts(BaseModel):
    """Number of samples with each mark."""

    keep: int
    relabel: int
    drop: int
    misplaced: int

    @classmethod
    def of(cls, numbers: Mapping[Mark, int]) -> Self:
        """The numbers of all marks."""
        return cls(**{mark.value: number for mark, number in numbers.items()})


class MarkPage(BaseModel):
    """Marks in the order of the score file."""

    marks: list[MarkPublic]
    counts: MarkCounts
    next: int | None = Field(description="`after` for the next page; null at the end")


class MarksChanged(BaseModel):
    """Number of samples with each mark, after the change."""

    counts: MarkCounts
