"""Bodies of the routes that ask finished jobs for an analysis, of whatever analyses there are."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias, Union

from pydantic import BaseModel, Field

from difficulty_service.base.analyses import all_analyses
from difficulty_service.base.contract import Found
from difficulty_service.bodies.comparison_kinds import Comparison
from difficulty_service.settings.option_types import Options

COMPARISONS: Mapping[str, Comparison] = {
    each.kind: each
    for analysis in all_analyses().values()
    if analysis.comparison is not None
    for each in [resolve_name(analysis.comparison)]
}
"""Each question that finished jobs can be asked, by its kind."""

if TYPE_CHECKING:
    ComparisonCreate: TypeAlias = Options
    Result: TypeAlias = Found
else:
    ComparisonCreate = Annotated[
        Union[tuple(each.body for each in COMPARISONS.values())],  # noqa: UP007 - made of a list
        Field(discriminator="kind"),
    ]
    """A question to one or several finished jobs."""
    Result = Union[tuple(each.result for each in COMPARISONS.values())]  # noqa: UP007


class ComparisonPublic(BaseModel):
    """What was asked of finished jobs, and what was found."""

    id: str = Field(description="The same for the same request")
    kind: Literal[tuple(COMPARISONS)]  # type: ignore[valid-type]
    state: Literal["running", "succeeded", "failed"]
    share: float = Field(description="How much of it is done, from 0 to 1; 0 while it waits")
    failure: str | None = Field(description="Why there is no result; ask again to try again")
    summary: str | None = Field(description="What was found, in a few words")
    request: dict[str, Any]
    result: Result | None = Field(
        description="What was found; null in lists, and until it has succeeded"
    )
    links: dict[str, str]


class ComparisonList(BaseModel):
    """What was asked of a job and is not deleted, the latest first, without results."""

    comparisons: list[ComparisonPublic]
    next: str | None = Field(description="`before` of the next page; null at the end")


def comparison_of(body: ComparisonCreate) -> Comparison:
    """The question that a request asks."""
    kind: str = getattr(body, "kind")  # noqa: B009 - only the models of the questions have it
    return COMPARISONS[kind]
