"""Copies of the samples of a job in other jobs, as finished jobs are asked for them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import ConfigDict, Field

from difficulty_service.analyses.leaks.recall import ListsResult
from difficulty_service.base.contract import Found, Printed
from difficulty_service.base.wording import Noun
from difficulty_service.bodies.comparison_kinds import (
    Compared,
    ComparedJob,
    Comparison,
    JobId,
    OtherJobs,
    Side,
    Tell,
    share_of,
)
from difficulty_service.settings.options import LeakOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from difficulty_service.analyses.leaks.leaks import LeakReport, SetLeaks

COPIES, EXACT, CONFLICTS = "copies", "exact copies", "conflicting copies"
COPY_KINDS = (COPIES, EXACT, CONFLICTS)
"""What samples of a test set are counted by."""


class SetResult(Found):
    """The counts of a test set."""

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
            lists=test.lists,
        )

    def number_of(self, kind: str) -> int | None:
        """How many samples are of a kind."""
        return {
            COPIES: self.copies,
            EXACT: self.exact_copies,
            CONFLICTS: self.conflicting_copies,
        }[kind]


class LeakResult(Printed):
    """What `difficulty leaks --json` prints."""

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
    def of(cls, found: "LeakReport") -> Self:
        """What was found, named."""
        return cls(
            train=found.train,
            samples=found.num_train,
            near_duplicates=found.near_duplicates,
            tests=tuple(SetResult.of(test) for test in found.tests),
            warnings=found.warnings,
        )


MOST_TESTS = 20
"""Test sets that one request names."""


class LeaksCreate(LeakOptions):
    """Which samples of other jobs are in the dataset of this one, too."""

    model_config = ConfigDict(defer_build=False)  # as FastAPI needs it

    kind: Literal["leaks"]

    tests: Annotated[tuple[JobId, ...], Field(min_length=1, max_length=MOST_TESTS)]
    """Finished jobs with the test sets; the job of the address has the training set."""


def find(
    asked: LeaksCreate,
    train: ComparedJob,
    tests: Sequence[ComparedJob],
    _earlier: "pa.Table | None",
    tell: Tell,
) -> Compared:
    """Looks for copies of the samples of other jobs in this one."""
    from difficulty_service.analyses.leaks.leaks import find_leaks

    splits = [test.split for test in tests]
    total = train.split.num_samples * sum(split.num_samples for split in splits)
    compared = share_of(total, tell)
    found = find_leaks(train.split, splits, asked.cosine, compared, asked.search)
    return Compared(
        LeakResult.of(found),
        found.pairs,
        {found.train: found.train_marks, **{test.name: test.marks for test in found.tests}},
    )


def summary(_asked: LeaksCreate, found: LeakResult) -> str:
    """The number of copies in each test set."""
    parts = [f"{test.copies:,} of {test.samples:,}" for test in found.tests]
    return f"{', '.join(parts)} are copies"


LEAKS = Comparison(
    kind="leaks",
    title="Copies in other jobs",
    sentence="Samples of test sets that are in this training set, too: exact copies, and near "
    "ones.",
    body=LeaksCreate,
    result=LeakResult,
    others=OtherJobs("tests", "Jobs with the test sets", several=True),
    find="difficulty_service.analyses.leaks.comparison:find",
    summary=summary,
    sides=(Side("test_id", "test", job="test"), Side("train_id", "training")),
    marks="its copies from",
    templates="difficulty_service.analyses.leaks",
)
