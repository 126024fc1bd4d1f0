"""What an analysis says of itself so that finished jobs can be asked for it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from pydantic import Field

from difficulty_service.base.contract import Found
from difficulty_service.bodies.jobs import ID_PATTERN
from difficulty_service.settings.option_types import Options

if TYPE_CHECKING:
    import pyarrow as pa

    from difficulty_service.scoring.splits import Split

JobId = Annotated[str, Field(pattern=ID_PATTERN)]
COMPARISON_PATTERN = "^[0-9a-f]{32}$"
ComparisonId = Annotated[str, Field(pattern=COMPARISON_PATTERN)]

MOST_CLASSES = 100
"""Classes that a result lists; a table has the others."""


@dataclass(frozen=True)
class OtherJobs:
    """The field of a request that names other finished jobs.

    Attributes:
        label: What the form calls them.
        several: Whether it names any number of them.
        needed: Whether it names at least one.
    """

    field: str
    label: str
    several: bool = False
    needed: bool = True

    def named_in(self, body: Options) -> Sequence[str]:
        """The jobs that a request names."""
        value = getattr(body, self.field)
        return list(value) if self.several else [value] if value is not None else []


@dataclass(frozen=True)
class Side:
    """A column of the table with the ids of samples, whose pictures a page shows.

    Attributes:
        sign: What each is here, such as `test`; empty where that is plain.
        job: Column that names the job of the sample; None for the job that was asked.
    """

    column: str
    sign: str = ""
    job: str | None = None


@dataclass(frozen=True)
class ComparedJob:
    """The samples of a finished job, and its score file."""

    split: "Split"
    scores: Path


@dataclass(frozen=True)
class Compared:
    """What was found, before it is stored.

    Attributes:
        table: What the command writes with `--out`.
        marks: Marks that drop samples, by the name of the split that they are about.
        classes: A table of all classes, if the result lists only some.
    """

    result: Found
    table: "pa.Table"
    marks: Mapping[str, "pa.Table"] = field(default_factory=dict)
    classes: "pa.Table | None" = None


Tell: TypeAlias = Callable[[float], None]
"""Takes the share of the work that is done."""


@dataclass(frozen=True)
class Comparison:
    """A question about one finished job and perhaps others, over HTTP and on the pages.

    Attributes:
        kind: Name of the question; the request has it as `kind`.
        title: What pages call it.
        sentence: What it finds.
        body: The request: the options, `kind`, and the fields that name other jobs.
        result: The findings, in numbers.
        others: The field of the request that names other jobs.
        find: `module:function` that takes the request, the `ComparedJob` of the address, the
            `ComparedJob`s of `others`, the table of an earlier answer or None, and a `Tell`. It
            returns a `Compared`.
        summary: What was found, in a few words, from the request and the result.
        sides: The samples of a row of the table that a page shows.
        marks: What marks of another job drop, in words that go before the name of the job.
        earlier: Field of the request that names an earlier answer to the same question, from which
            it goes on; None for a question without one.
        listed: `module:function` that takes the table and returns the rows that a page shows, in
            their order; None for all of them.
        templates: Package with `comparison.html.j2` in its folder `templates`, which words what was
            found and each row; None for plain tables.
        verb: What the button of the form says.
    """

    kind: str
    title: str
    sentence: str
    body: type[Options]
    result: type[Found]
    others: OtherJobs
    find: str
    summary: Callable[[Any, Any], str]
    sides: tuple[Side, ...] = ()
    marks: str = "its samples from"
    earlier: str | None = None
    listed: str | None = None
    templates: str | None = None
    verb: str = "Compare"


def share_of(total: int, tell: Tell) -> Callable[[int], None]:
    """Takes how many pairs of samples were compared since, and tells the share of all of them."""
    done = 0

    def add(compared: int) -> None:
        nonlocal done
        done += compared
        tell(min(1.0, done / max(1, total)))

    return add
