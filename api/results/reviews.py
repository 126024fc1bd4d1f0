"""What several reviewers decided about the samples of a job, compared and merged."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from sqlalchemy import Engine

from api.jobs.marks import BATCH
from api.jobs.reviewers import ReviewMarks, review_marks
from api.jobs.store import Job
from api.results.decisions import MARKS_SCHEMA, to_times
from api.results.score_columns import OpenScores, ScoreColumns
from api.storage.tables import FINAL
from difficulty_service.marks.mark_kinds import MARK_KINDS, Mark
from difficulty_service.scores.samples import ScoredSamples

ALONE = tuple(mark for mark in MARK_KINDS if mark not in {Mark.KEEP, Mark.RELABEL})
"""Marks that are no decision for a class; each is the decided value of its place."""

TIED = -1
"""In place of a decided value, where reviewers are split and nobody decided finally."""

BASES = ("adjudicated", "unanimous", "majority")
"""Why a merged decision holds."""

MERGED_SCHEMA = pa.schema(
    [
        *MARKS_SCHEMA,
        pa.field("basis", pa.string(), nullable=False),
        pa.field("reviewers", pa.int32(), nullable=False),
    ]
)


@dataclass(frozen=True)
class Merged:
    """One decision for each sample that somebody decided about.

    Attributes:
        rows: Rows of the samples, ascending. Shape (decided,).
        values: Decided value of each, or TIED. Shape (decided,).
        basis: Place in BASES, for a tie without meaning. Shape (decided,).
        reviewers: Number of reviewers who decided about it. Shape (decided,).
        orders: Order in which all of them met it, as in `ReviewMarks`; -1 where they differ.
            Shape (decided,).
        at: Time of its latest mark. Shape (decided,).
    """

    rows: NDArray[np.int64]
    values: NDArray[np.int64]
    basis: NDArray[np.int64]
    reviewers: NDArray[np.int64]
    orders: NDArray[np.int64]
    at: NDArray[np.float64]

    @property
    def tied(self) -> NDArray[np.int64]:
        """Rows of the samples without a decision, ascending."""
        return self.rows[self.values == TIED]


@dataclass(frozen=True)
class JobReview:
    """The decisions of all reviewers of a job.

    Keeping a label and relabelling to that same class are one decision; every other mark is
    another one than any class.
    """

    scores: ScoreColumns
    marks: ReviewMarks

    @property
    def samples(self) -> ScoredSamples:
        """The samples of the job."""
        return self.scores.samples

    @cached_property
    def value_names(self) -> Sequence[str | None]:
        """Name of the class of each decided value; None for one of ALONE."""
        named = (label for mark, label in self.marks.decided if mark is Mark.RELABEL)
        nameless = [None] * len(ALONE)
        return [*nameless, *dict.fromkeys([*self.samples.names.values(), *filter(None, named)])]

    @cached_property
    def given_values(self) -> NDArray[np.int64]:
        """Value of the given label of the sample of each mark. Shape (marks,)."""
        return self._values_of_labels(self.marks.rows)

    def _values_of_labels(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        places = {name: place for place, name in enumerate(self.value_names)}
        labels, inverse = np.unique(self.samples.labels[rows], return_inverse=True)
        names = map(self.samples.name_of, labels.tolist())
        return np.array([places[name] for name in names], np.int64)[inverse]

    @cached_property
    def values(self) -> NDArray[np.int64]:
        """Decided value of each mark. Shape (marks,)."""
        places = {name: place for place, name in enumerate(self.value_names)}
        # A label that is kept has no name here: the given one takes its place.
        of_decisions = np.array(
            [
                ALONE.index(mark) if mark in ALONE else places[label]
                for mark, label in self.marks.decided
            ],
            np.int64,
        )
        keeps = np.array([mark is Mark.KEEP for mark, _ in self.marks.decided], bool)
        decisions = self.marks.decisions
        return np.where(keeps[decisions], self.given_values, of_decisions[decisions])

    @cached_property
    def is_final(self) -> NDArray[np.bool_]:
        """Whether each mark is a final decision, and not that of a reviewer. Shape (marks,)."""
        final = np.array([owner == FINAL for owner in self.marks.owner_ids], bool)
        return final[self.marks.owners]

    @cached_property
    def votes(self) -> "Votes":
        """What the reviewers decided about each sample."""
        own = ~self.is_final
        return Votes.of(self.marks.rows[own], self.values[own], len(self.value_names))

    @property
    def disagreed(self) -> NDArray[np.int64]:
        """Rows of the samples that at least two reviewers decided differently, ascending."""
        return self.votes.rows[self.votes.distinct > 1]

    @property
    def finally_decided(self) -> NDArray[np.int64]:
        """Rows of the samples with a final decision, ascending."""
        return self.marks.rows[self.is_final]

    @property
    def num_compared(self) -> int:
        """Number of samples that at least two reviewers decided about."""
        return int((self.votes.number > 1).sum())

    @cached_property
    def merged(self) -> Merged:
        """The final decision about each sample, else the one of most reviewers.

        Where no decision has more reviewers than each other one, there is none.
        """
        votes, marks = self.votes, self.marks
        final_rows, final_values = marks.rows[self.is_final], self.values[self.is_final]
        rows = np.union1d(votes.rows, final_rows)
        voted, final = np.searchsorted(rows, votes.rows), np.searchsorted(rows, final_rows)
        values = np.full(len(rows), TIED)
        values[voted] = votes.winner
        values[final] = final_values
        basis = np.zeros(len(rows), np.int64)
        basis[voted] = np.where(votes.distinct == 1, 1, 2)
        basis[final] = 0
        reviewers = np.zeros(len(rows), np.int64)
        reviewers[voted] = votes.number
        at = np.zeros(len(rows))
        np.maximum.at(at, np.searchsorted(rows, marks.rows), marks.at)
        return Merged(rows, values, basis, reviewers, self._common_orders(rows), at)

    def _common_orders(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        own = ~self.is_final
        places, orders = np.searchsorted(rows, self.marks.rows[own]), self.marks.orders[own]
        low = np.full(len(rows), len(self.marks.order_names))
        high = np.full(len(rows), -1)
        np.minimum.at(low, places, orders)
        np.maximum.at(high, places, orders)
        return np.where(low == high, low, -1)

    def merged_tables(self) -> Iterator[pa.Table]:
        """The merged decisions without ties, as `MERGED_SCHEMA`, in the order of the rows."""
        merged = self.merged
        decided = np.flatnonzero(merged.values != TIED)
        orders = [*self.marks.order_names, ""]  # the last one for -1
        for first in range(0, len(decided), BATCH):
            places = decided[first : first + BATCH]
            rows, values = merged.rows[places], merged.values[places]
            kept = values == self._values_of_labels(rows)
            marks = np.where(kept, Mark.KEEP, Mark.RELABEL).astype(object)  # of any length
            for value, mark in enumerate(ALONE):
                marks[values == value] = mark
            yield pa.table(
                [
                    self.samples.ids.take(pa.array(rows)).cast(pa.string()),
                    marks.tolist(),
                    [
                        self.value_names[value] if mark == Mark.RELABEL else None
                        for value, mark in zip(values, marks, strict=True)
                    ],
                    self.scores.label_names(rows),
                    self.scores.contents_of(rows),
                    [orders[order] for order in merged.orders[places]],
                    [self.scores.round] * len(rows),
                    to_times(merged.at[places]),
                    [BASES[basis] for basis in merged.basis[places]],
                    merged.reviewers[places].astype(np.int32),
                ],
                schema=MERGED_SCHEMA,
            )


def open_review(
    engine: Engine, open_scores: OpenScores, job: Job, only: str | None = None
) -> JobReview:
    """The decisions about the samples of a finished job, or those of one owner only."""
    return JobReview(open_scores.get(job), review_marks(engine, job.id, only))


@dataclass(frozen=True)
class Votes:
    """How often each decision was made about each sample.

    Attributes:
        rows: Rows of the samples with a vote, ascending. Shape (samples,).
        number: Number of votes. Shape (samples,).
        distinct: Number of different decisions. Shape (samples,).
        winner: Value with more votes than each other one, else TIED. Shape (samples,).
        alpha: Krippendorff's alpha of nominal values: 1 is agreement, 0 what chance would give.
            None where no sample has two votes, or all are for one value.
    """

    rows: NDArray[np.int64]
    number: NDArray[np.int64]
    distinct: NDArray[np.int64]
    winner: NDArray[np.int64]
    alpha: float | None

    @classmethod
    def of(cls, rows: NDArray[np.int64], values: NDArray[np.int64], num_values: int) -> "Votes":
        """The votes of marks in any order; a sample and a reviewer have one at most."""
        if not len(rows):
            empty = np.empty(0, np.int64)
            return cls(empty, empty, empty, empty, None)
        pairs, counts = np.unique(rows * num_values + values, return_counts=True)
        of_pairs = pairs % num_values
        samples, first, distinct = np.unique(
            pairs // num_values, return_index=True, return_counts=True
        )
        is_most = counts == np.repeat(np.maximum.reduceat(counts, first), distinct)
        is_clear = np.add.reduceat(is_most.astype(np.int64), first) == 1
        number = np.add.reduceat(counts, first)
        return cls(
            rows=samples,
            number=number,
            distinct=distinct,
            winner=np.where(is_clear, np.add.reduceat(is_most * of_pairs, first), TIED),
            alpha=_alpha(of_pairs, counts, np.repeat(number, distinct)),
        )


def _alpha(
    values: NDArray[np.int64], counts: NDArray[np.int64], of_sample: NDArray[np.int64]
) -> float | None:
    """Krippendorff's alpha, of the votes for each value about each sample and about the sample.

    `krippendorff_alpha` is the same of tensors; a server does without torch.
    """
    paired = of_sample > 1
    values, counts, of_sample = values[paired], counts[paired], of_sample[paired]
    number = int(counts.sum())
    by_chance = float(number**2 - (np.bincount(values, counts) ** 2).sum()) if number else 0.0
    if not by_chance:
        return None
    disagreeing = float((counts * (of_sample - counts) / (of_sample - 1)).sum())
    return 1 - disagreeing * (number - 1) / by_chance
