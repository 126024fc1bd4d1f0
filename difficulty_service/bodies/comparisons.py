"""Bodies of the routes that compare finished jobs, and what the same commands print."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from difficulty_service.base.contract import Found
from difficulty_service.base.wording import Noun
from difficulty_service.bodies.jobs import ID_PATTERN
from difficulty_service.settings.options import DiffOptions, LeakOptions, SelectOptions

if TYPE_CHECKING:
    from difficulty_service.analyses.leaks.leaks import LeakReport, SetLeaks
    from difficulty_service.analyses.selection.selection import Selection
    from difficulty_service.analyses.versions.changes import ChangeReport

COPIES, EXACT, CONFLICTS = "copies", "exact copies", "conflicting copies"
COPY_KINDS = (COPIES, EXACT, CONFLICTS)
"""What samples of a test set are counted by."""

CHANGE_KINDS = ("added", "removed", "changed", "moved", "relabelled")
"""What samples of two versions are counted by."""


class ListsResult(Found):
    """What inverted lists find of near copies."""

    samples: int
    """Samples, chosen at random, that were compared with all."""

    pairs: int
    """Pairs of one of them and a near copy."""

    found: int
    """Number of those that the lists found."""


class SetResult(Found):
    """What is counted of a test set."""

    name: str
    """The test set."""

    noun: Noun
    """What a sample is in a word."""

    samples: int
    """Number of samples."""

    copies: int
    """Samples with a copy in the training set."""

    exact_copies: int
    """Samples with an exact copy there."""

    conflicting_copies: int
    """Samples with a copy there that has another label."""

    train_copies: int
    """Samples of the training set that are copied in the test set."""

    pairs: int
    """Pairs of a sample and a copy of it."""

    search: Literal["exact", "lists"]
    """How near copies were looked for: in all samples, or in inverted lists, which miss a few."""

    lists: ListsResult | None
    """What the lists find; null where all samples were compared with all."""

    @classmethod
    def of(cls, test: "SetLeaks") -> Self:
        """The same numbers, named."""
        return cls(
            name=test.name,
            noun=test.noun,
            samples=test.num_samples,
            copies=test.copies,
            exact_copies=test.exact,
            conflicting_copies=test.conflicting,
            train_copies=test.train_copies,
            pairs=test.num_pairs,
            search="exact" if test.lists is None else "lists",
            lists=None if test.lists is None else ListsResult(**asdict(test.lists)),
        )

    def number_of(self, kind: str) -> int | None:
        """How many samples are of a kind."""
        return {
            COPIES: self.copies,
            EXACT: self.exact_copies,
            CONFLICTS: self.conflicting_copies,
        }[kind]


class LeakResult(Found):
    """What `difficulty leaks --json` prints."""

    version: Literal[1] = 1
    """Version of this object: another number where a name goes or changes its meaning."""

    train: str
    """The training set."""

    samples: int
    """Number of its samples."""

    near_duplicates: float | None
    """Smallest cosine of near copies; null where exact copies only were looked for."""

    tests: tuple[SetResult, ...]
    """The test sets, in the order of the call."""

    warnings: tuple[str, ...]
    """What to know of the numbers, in sentences."""

    @classmethod
    def of(cls, found: "LeakReport", tests: Sequence[SetResult]) -> Self:
        """What was found, named."""
        return cls(
            train=found.train,
            samples=found.num_train,
            near_duplicates=found.near_duplicates,
            tests=tuple(tests),
            warnings=found.warnings,
        )


class ClassShift(Found):
    """How far a class is from where it was."""

    name: str
    """The class; empty for all samples together."""

    old: int
    """Samples in the old version."""

    new: int
    """Samples in the new version."""

    frechet: float | None
    """Fréchet distance of the Gaussians; null where the class is in one version only."""

    kl: float | None
    """Divergence of the new Gaussian from the old one, in nats; null as well."""

    kl_by_chance_high: float | None
    """Value that 2.5 % of the permutations exceed; null without any."""

    p_value: float | None
    """Share of the permutations in which the means are as far apart; null without any."""


class DiffResult(Found):
    """What `difficulty diff --json` prints."""

    version: Literal[1] = 1
    """Version of this object: another number where a name goes or changes its meaning."""

    old: str
    """The old version."""

    new: str
    """The new version."""

    noun: Noun
    """What a sample is in a word."""

    old_samples: int
    """Samples of the old version."""

    samples: int
    """Samples of the new version."""

    added: int | None
    """Samples of the new version only; null, as the next ones, where Gaussians are compared."""

    removed: int | None
    """Samples of the old version only."""

    changed: int | None
    """Samples with the same id and other contents."""

    moved: int | None
    """Samples with the same contents and another id."""

    relabelled: int | None
    """Samples of both versions with another label."""

    separability: float | None
    """Share of pairs of an added and an old sample that a classifier tells apart; null where few
    are added."""

    classes: tuple[ClassShift, ...]
    """How far each class moved, and all samples together, last."""

    warnings: tuple[str, ...]
    """What to know of the numbers, in sentences."""

    @classmethod
    def of(cls, found: "ChangeReport") -> Self:
        """What was found, named."""
        counts = found.counts or {}
        named = ClassShift.model_fields.keys() - {"name"}
        return cls(
            old=found.old,
            new=found.new,
            noun=found.noun,
            old_samples=found.num_old,
            samples=found.num_new,
            added=counts.get("added"),
            removed=counts.get("removed"),
            changed=counts.get("changed"),
            moved=counts.get("moved"),
            relabelled=found.relabelled,
            separability=found.separability,
            classes=tuple(
                ClassShift(name=row["class"], **{each: row[each] for each in named})
                for row in found.classes.to_pylist()
            ),
            warnings=found.warnings,
        )

    def number_of(self, kind: str) -> int | None:
        """How many samples are of a kind."""
        number: int | None = getattr(self, kind)
        return number


class SelectResult(Found):
    """What `difficulty select --json` prints."""

    version: Literal[1] = 1
    """Version of this object: another number where a name goes or changes its meaning."""

    pool: str
    """The samples that were chosen from."""

    noun: Noun
    """What a sample is in a word."""

    samples: int
    """Number of samples of the pool."""

    excluded: int
    """Number of those that have a label already, or were chosen before."""

    chosen: int
    """Number of samples that were chosen."""

    strategies: dict[str, int]
    """Number of samples that each strategy chose."""

    classes: dict[str, int]
    """Number of samples that were chosen of each class; empty without labels."""

    warnings: tuple[str, ...]
    """What to know of the choice, in sentences."""

    @classmethod
    def of(cls, selection: "Selection") -> Self:
        """What was chosen, counted."""
        return cls(
            pool=selection.name,
            noun=selection.noun,
            samples=selection.num_samples,
            excluded=selection.num_excluded,
            chosen=len(selection.table),
            strategies=dict(selection.strategies),
            classes=dict(selection.classes),
            warnings=selection.warnings,
        )


JobId = Annotated[str, Field(pattern=ID_PATTERN)]
COMPARISON_PATTERN = "^[0-9a-f]{32}$"
ComparisonId = Annotated[str, Field(pattern=COMPARISON_PATTERN)]

MOST_TESTS = 20
"""Test sets that one request names."""


class LeaksCreate(LeakOptions):
    """Which samples of other jobs are in the dataset of this one, too."""

    model_config = ConfigDict(defer_build=False)  # as FastAPI needs it

    kind: Literal["leaks"]

    tests: Annotated[tuple[JobId, ...], Field(min_length=1, max_length=MOST_TESTS)]
    """Finished jobs with the test sets; the job of the address has the training set."""


class DiffCreate(DiffOptions):
    """What differs between the dataset of this job and an older version of it."""

    model_config = ConfigDict(defer_build=False)

    kind: Literal["diff"]

    old: JobId
    """Finished job with the old version; the job of the address has the new one."""


class SelectCreate(SelectOptions):
    """Which samples of this job to label next, or to keep."""

    model_config = ConfigDict(defer_build=False)

    kind: Literal["select"]

    labelled: JobId | None = None
    """Finished job with samples that have labels already; copies of them are not chosen."""

    chosen: ComparisonId | None = None
    """An earlier choice of this job, whose samples count as chosen already."""

    @model_validator(mode="after")
    def _reads_what_is_given(self) -> Self:
        if self.by is not None and not self.reads("scores"):
            raise ValueError(f"by: it changes nothing for {self.strategy}")
        return self


ComparisonCreate = Annotated[LeaksCreate | DiffCreate | SelectCreate, Field(discriminator="kind")]
"""What is asked of one or several finished jobs."""


class ComparisonPublic(BaseModel):
    """What was asked of finished jobs, and what was found."""

    id: str = Field(description="The same for the same request")
    kind: Literal["leaks", "diff", "select"]
    state: Literal["running", "succeeded", "failed"]
    share: float = Field(description="How much of it is done, from 0 to 1; 0 while it waits")
    failure: str | None = Field(description="Why there is no result; ask again to try again")
    summary: str | None = Field(description="What was found, in a few words")
    request: dict[str, Any]
    result: LeakResult | DiffResult | SelectResult | None = Field(
        description="What was found; null in lists, and until it has succeeded"
    )
    links: dict[str, str]


class ComparisonList(BaseModel):
    """What was asked of a job and is not deleted, the latest first, without results."""

    comparisons: list[ComparisonPublic]
    next: str | None = Field(description="`before` of the next page; null at the end")
