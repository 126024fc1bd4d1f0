"""A decision of a person about a sample: its record, and what follows from several of them.

The record has one schema. A file of marks, the body of a request and what `apply_marks` takes have
its fields; see docs/cleaning.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import pyarrow as pa

from difficulty_service.base.errors import CleaningError
from difficulty_service.base.wording import count_of, is_or_are, list_names
from difficulty_service.marks.mark_kinds import Mark, count_kinds, kinds_for

RANDOM = "random"
"""The order in which any sample may come next."""

UNSEEN = "unseen"
"""The order of samples that a condition marked, at which nobody looked one by one."""

LISTED = 20
"""Number of sample ids that an error lists."""

SCHEMA = pa.schema(
    [
        pa.field("sample_id", pa.string(), nullable=False),
        pa.field("mark", pa.string(), nullable=False),
        pa.field("label", pa.string()),
        pa.field("given_label", pa.string()),
        pa.field("content", pa.string()),
        pa.field("order", pa.string(), nullable=False),
        pa.field("round", pa.int64()),
    ]
)
"""The columns of decisions, which are the fields of `MarkedSample`."""

ID_COLUMN, MARK_COLUMN, LABEL_COLUMN = SCHEMA.names[:3]


@dataclass(frozen=True, slots=True)
class MarkedSample:
    """What a person decided about a sample.

    Attributes:
        label: Class of a relabelled sample, or of a misplaced box that was relabelled before.
        given_label: Class that the dataset gave it when it was marked; None where that is unknown.
        content: Digest of its content then, in hexadecimal digits; None where that is unknown.
        order: Order in which samples were looked at: `random` where it was any; `unseen` where a
            condition marked them; empty where that is unknown, or several were marked at once.
        round: Number of the scores on which the decision was made, from 1; None where that is
            unknown.
    """

    sample_id: str
    mark: Mark
    label: str | None = None
    given_label: str | None = None
    content: str | None = None
    order: str = ""
    round: int | None = None

    @property
    def number(self) -> int:
        """Number of its round, which is the first where it is unknown."""
        return self.round or 1

    @property
    def choice(self) -> tuple[Mark, str | None]:
        """Mark and label."""
        return self.mark, self.label

    def is_about(self, content: str | None) -> bool:
        """Whether the mark is about a sample with this content, as far as both are known."""
        return None in {self.content, content} or self.content == content

    def after(self, earlier: "MarkedSample | None") -> "MarkedSample":
        """The mark of a sample that was shown with an earlier mark applied to it.

        Whoever keeps a sample that was relabelled has seen it with its new label.
        """
        if earlier is None:
            return self
        is_again = self.choice == earlier.choice
        if is_again or (self.mark is Mark.KEEP and earlier.mark is Mark.RELABEL):
            return replace(earlier, sample_id=self.sample_id, content=self.content)
        given = earlier.given_label or self.given_label
        if earlier.label is not None and self.mark is Mark.MISPLACED:
            return replace(self, label=earlier.label, given_label=given)
        if earlier.label is not None and self.mark is Mark.KEEP:  # its box is right after all
            return replace(self, mark=Mark.RELABEL, label=earlier.label, given_label=given)
        if self.mark is Mark.RELABEL and self.label == given:
            return replace(self, mark=Mark.KEEP, label=None, given_label=given)
        return replace(self, given_label=given)


def to_table(marks: Iterable[MarkedSample]) -> pa.Table:
    """Decisions as a table of `SCHEMA`."""
    rows = list(marks)
    columns = [[getattr(each, name) for each in rows] for name in SCHEMA.names]
    return pa.table(columns, schema=SCHEMA)


def from_table(table: pa.Table) -> list[MarkedSample]:
    """The decisions in a table of `SCHEMA`, which may have more columns."""
    columns = (table[name].to_pylist() for name in SCHEMA.names)
    return [
        MarkedSample(sample_id, Mark(mark), *others)
        for sample_id, mark, *others in zip(*columns, strict=True)
    ]


@dataclass(frozen=True)
class Marks:
    """Decisions by the ids of their samples, and sentences about what was read."""

    samples: Mapping[str, MarkedSample] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()

    @classmethod
    def of(cls, marks: Iterable[MarkedSample], warnings: Sequence[str] = ()) -> Self:
        """Decisions, of which the last about a sample counts."""
        return cls({each.sample_id: each for each in marks}, tuple(warnings))


NO_MARKS = Marks()


@dataclass(frozen=True)
class MarkHistory:
    """The marks of a dataset.

    Attributes:
        earlier: Marks with which the samples were shown to whoever gave the later ones.
    """

    earlier: Marks = NO_MARKS
    later: Marks = NO_MARKS

    def __bool__(self) -> bool:
        return bool(self.earlier.samples or self.later.samples)

    @cached_property
    def next_round(self) -> int:
        """Number of the round of the later marks."""
        return 1 + max((mark.number for mark in self.earlier.samples.values()), default=0)

    def numbered(self, mark: MarkedSample) -> MarkedSample:
        """One of the later marks with the number of its round."""
        return mark if mark.round else replace(mark, round=self.next_round)

    @property
    def ids(self) -> Sequence[str]:
        """Ids of the samples of all marks."""
        return list(dict.fromkeys([*self.earlier.samples, *self.later.samples]))

    def composed(self) -> Marks:
        """All marks of the dataset, by the ids that its samples had when they were marked."""
        every = dict(self.earlier.samples)
        for sample_id, mark in self.later.samples.items():
            before = every.get(sample_id)
            if before is not None and not before.is_about(mark.content):
                before = None  # the sample has changed, and was shown without that mark
            every[sample_id] = self.numbered(mark).after(before)
        return Marks(every, (*self.earlier.warnings, *self.later.warnings))


def refuse_marks_of_boxes(marks: Mapping[str, MarkedSample], *, boxes: bool) -> None:
    """Raises CleaningError for marks of boxes where the samples are none."""
    known = kinds_for(boxes=boxes)
    others = {name: each.mark for name, each in marks.items() if each.mark not in known}
    if others:
        raise CleaningError(
            f"{count_of(len(others), 'sample')} {is_or_are(len(others))} marked "
            f"{' or '.join(sorted({*others.values()}))}, which only boxes of objects can be, and "
            f"these scores are not known to be of boxes: {list_names(list(others), LISTED)}",
            f"mark them {', '.join(known)}; if they are boxes, score the dataset again, as older "
            "scores do not say so",
            parameter="marks",
        )


def unverified(rows: pa.Table) -> pa.Table:
    """The rows of scores about whose label nobody has decided."""
    return rows.filter(rows[MARK_COLUMN].is_null()) if MARK_COLUMN in rows.column_names else rows


def describe_round(number: int, counts: Mapping[str, int], newly_doubtful: int | None) -> str:
    """A round of scores in words.

    Args:
        counts: Number of samples that had each mark before.
        newly_doubtful: As in `Provenance`.
    """
    doubtful = "" if newly_doubtful is None else f" · {newly_doubtful:,} newly doubtful"
    return f"Round {number}: {count_kinds(counts)}{doubtful}"
