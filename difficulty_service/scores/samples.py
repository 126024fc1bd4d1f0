"""The columns of a score file as arrays, which every part of the report reads."""

from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import pairwise
from typing import Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.datasets.sample import UNLABELLED, has_labels
from difficulty_service.marks.mark_kinds import Mark, MarkKind, kinds_for
from difficulty_service.marks.record import MARK_COLUMN, describe_round
from difficulty_service.scores.copies import COPIES, copies_in, copy_groups
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.label_counts import LabelCounts, shares_of_wrong
from difficulty_service.scores.provenance import Provenance, RandomCheck
from difficulty_service.scores.score_columns import (
    FAULT_COLUMN,
    LIKELIEST_CLASSES,
    MEASURES,
    measure_of,
    require_columns,
)
from difficulty_service.scores.separation import Separation
from difficulty_service.scores.tiers import (
    ALMOST_CERTAIN_SUSPICION,
    PROBABLE_SUSPICION,
    evidence_of,
)


def class_names_of(scores: ScoreFile) -> dict[int, str]:
    """Name of each class index that is known, in the order of the indices.

    The rows name the classes that have samples. The other classes of the dataset are named in the
    metadata, which is used if it agrees with the rows: scores against the Gaussians of another
    dataset have the class indices of that one.
    """
    pairs = scores.table.select(["label", "label_name"]).set_column(
        1, "label_name", scores.table["label_name"].cast(pa.string())
    )
    distinct = pairs.group_by(["label", "label_name"], use_threads=False).aggregate([])
    used = dict(zip(*(distinct[name].to_pylist() for name in pairs.column_names), strict=True))
    declared = dict(enumerate(scores.provenance.class_names))
    agrees = all(declared.get(label) == name for label, name in used.items())
    return dict(sorted(((declared | used) if agrees else used).items()))


HARDEST_SHARE = 0.05
"""Share of the samples that the report calls the hardest."""

UNUSUAL_SHARE = 0.01
"""Share of the samples whose `md_agnostic` counts as unlike anything else."""

COLUMNS = ("sample_id", "label", "label_name", "percentile")
"""Columns of a score file that the report needs, besides one of MEASURES."""

COMPARED = ("nearest_label", "label_margin")
"""Columns that compare classes, which only a file with AGNOSTIC as its difficulty lacks."""

SUSPICION, SUSPECTED = "suspicion", "suggested_label"
"""Columns that tell which samples to check, in which order, where a score file has them."""

AGNOSTIC = "md_agnostic"
"""Column that tells which samples are unlike anything else, where a score file has it."""


@dataclass(frozen=True)
class Decided:
    """What people decided before samples were scored.

    Attributes:
        round: Number of the round and of each kind of decision, in words; None in the first.
        num_relabelled: Number of samples whose label was wrong.
        check: What a random choice of the samples says; None without one.
        dropped_unseen: Number of samples that a condition dropped.
    """

    round: str | None = None
    num_relabelled: int = 0
    check: RandomCheck | None = None
    dropped_unseen: int = 0

    @classmethod
    def of(cls, scores: Provenance) -> Self:
        """What a score file says of the decisions."""
        dropped = scores.dropped_unseen or 0
        if scores.round is None or scores.marks is None:
            return cls(dropped_unseen=dropped)
        said = describe_round(scores.round, scores.marks, scores.newly_doubtful)
        return cls(said, scores.marks.get(Mark.RELABEL, 0), scores.random_check, dropped)


NOTHING_DECIDED = Decided()


@dataclass(frozen=True)
class ScoredSamples:
    """The scores of all samples; larger is harder.

    Attributes:
        labels: Class indices. Shape (samples,).
        nearest: Indices of the classes that fit best, -1 where none is known; the likeliest other
            class where a label is suspicious. Shape (samples,).
        margins: Label margins, NaN where there is none. Shape (samples,).
        rmd: Relative Mahalanobis distances; in a file without them the losses of a classifier, or
            the distances to all samples; NaN where there is none. Shape (samples,).
        percentiles: Percentiles of `rmd`, NaN where there is none. Shape (samples,).
        copy_of: Id of the first sample that each one is a copy or near copy of; null for others.
        suspicion: Log-odds that each label is wrong, NaN where there are none; None where the
            score file has none at all. Shape (samples,).
        agnostic: Distances to all samples, NaN where there is none; None where the score file does
            not have them. Shape (samples,).
        suggested: Likeliest class other than each label, -1 where none is known; None where the
            score file has none at all. Shape (samples,).
        likeliest: The classes that fit each sample best, the likeliest first, -1 where there is
            none; None where the score file does not have them. Shape (samples, 3).
        p_likeliest: Probability of each of them, NaN where there is none. Shape (samples, 3).
        verified: Whether a person has verified the label; None where nobody has verified any.
            Shape (samples,).
        decided: What people decided before these scores.
        measure: Which of MEASURES `rmd` holds.
        shares_of_wrong: As in LabelCounts.
        caution: What to know before anything else, where features hardly tell the classes apart.
        boxes: Whether the samples are boxes of objects in images.
    """

    ids: pa.StringArray
    labels: NDArray[np.int64]
    nearest: NDArray[np.int64]
    margins: NDArray[np.float64]
    rmd: NDArray[np.float64]
    percentiles: NDArray[np.float64]
    copy_of: pa.StringArray
    names: Mapping[int, str]
    suspicion: NDArray[np.float64] | None = None
    agnostic: NDArray[np.float64] | None = None
    suggested: NDArray[np.int64] | None = None
    likeliest: NDArray[np.int64] | None = None
    p_likeliest: NDArray[np.float64] | None = None
    verified: NDArray[np.bool_] | None = None
    decided: Decided = NOTHING_DECIDED
    measure: str = "rmd"
    shares_of_wrong: tuple[float, float] | None = None
    caution: str | None = None
    boxes: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def measure_name(self) -> str:
        """A word for what `rmd` holds."""
        return MEASURES[self.measure]

    @property
    def compares_classes(self) -> bool:
        """Whether the file compares each sample with the classes that it may be of."""
        return self.measure != AGNOSTIC

    @property
    def has_labels(self) -> bool:
        """Whether the samples have labels."""
        return has_labels(tuple(self.names.values()))

    @property
    def mark_kinds(self) -> Mapping[Mark, MarkKind]:
        """The marks that people may give to these samples."""
        return kinds_for(boxes=self.boxes)

    @property
    def takes_new_classes(self) -> bool:
        """Whether a person may name any class: samples without labels have none to choose from."""
        return UNLABELLED in self.names.values()

    @cached_property
    def is_doubtful(self) -> NDArray[np.bool_]:
        """Whether the label is doubted: doubts above 0, and not verified. Shape (samples,)."""
        return self._unless_verified(self.doubts > 0)

    @cached_property
    def by_suspicion(self) -> bool:
        """Whether labels are doubted by their suspicion, and not by their margin."""
        suspicion = np.empty(0) if self.suspicion is None else self.suspicion
        return evidence_of(int((suspicion > PROBABLE_SUSPICION).sum())) == "suspicion"

    @cached_property
    def others(self) -> NDArray[np.int64]:
        """Class that each sample may be instead, also where its label fits; -1 for none."""
        fits = (self.nearest == self.labels) | (self.nearest < 0)
        other = np.full(len(self), -1) if self.suggested is None else self.suggested
        return np.where(fits, other, self.nearest)

    def shares(self, row: int) -> Sequence[tuple[int, float]]:
        """The classes that fit a sample best with the probability of each, the likeliest first.

        None where the score file does not tell.
        """
        if self.likeliest is None or self.p_likeliest is None:
            return []
        found = zip(self.likeliest[row].tolist(), self.p_likeliest[row].tolist(), strict=True)
        return [each for each in found if each[0] >= 0]

    @property
    def num_unverified(self) -> int:
        """Number of samples whose label no person has verified."""
        return len(self) - (0 if self.verified is None else int(self.verified.sum()))

    @property
    def doubts(self) -> NDArray[np.float64]:
        """What speaks against each label: suspicion, or else the margin. Shape (samples,)."""
        if self.suspicion is None or not self.by_suspicion:
            return self.margins
        return self.suspicion

    @property
    def p_wrong(self) -> NDArray[np.float64]:
        """Probability that each label is wrong, NaN where it is not judged. Shape (samples,)."""
        if self.suspicion is None:
            return np.full(len(self), np.nan)
        # Of the size of the suspicion, whose exponential does not overflow.
        odds = np.exp(-np.abs(self.suspicion))
        return np.where(self.suspicion > 0, 1, odds) / (1 + odds)

    @property
    def concerns(self) -> NDArray[np.float64]:
        """What samples to check are ordered by, the largest first: doubts, without classes `rmd`.

        Shape (samples,).
        """
        return self.doubts if self.compares_classes else self.rmd

    @property
    def label_counts(self) -> LabelCounts | None:
        """How many labels are of which kind; None without suspicion."""
        if self.suspicion is None:
            return None
        wrong, between, fits, _ = np.bincount(self.tiers, minlength=4).tolist()
        judged = wrong + between + fits
        verified = 0 if self.verified is None else int(self.verified.sum())
        return LabelCounts(
            judged,
            wrong,
            int((self.suspicion > ALMOST_CERTAIN_SUSPICION).sum()),
            between,
            self.shares_of_wrong,
            verified,
            self.decided.num_relabelled,
            self.decided.check,
            self.decided.dropped_unseen,
        )

    @cached_property
    def tiers(self) -> NDArray[np.uint8]:
        """Place of each label in `tiers.TIERS`, 3 where it is not judged. Shape (samples,).

        Without suspicion, the second where another class fits better, and otherwise the third.
        """
        if self.suspicion is None:
            return np.where(self.is_doubtful, 1, 2).astype(np.uint8)
        is_judged = ~np.isnan(self.suspicion)
        if self.verified is not None:
            is_judged |= self.verified
        wrong = self.suspicion > PROBABLE_SUSPICION
        between = self._unless_verified(self.margins > 0)
        tiers = np.select([~is_judged, wrong, between], [3, 0, 1], 2)
        return tiers.astype(np.uint8)

    @cached_property
    def share_keys(self) -> NDArray[np.uint64]:
        """Numbers by which samples are divided among people, of their ids alone. (samples,)."""
        digests = (blake2b(text.encode(), digest_size=8).digest() for text in self.ids.to_pylist())
        return np.frombuffer(b"".join(digests), "<u8")

    @cached_property
    def is_unusual(self) -> NDArray[np.bool_]:
        """Whether a sample is far from all others, but no other class fits better."""
        if self.agnostic is None or np.isnan(self.agnostic).all():
            return np.zeros(len(self), bool)
        known = self.agnostic[~np.isnan(self.agnostic)]
        cut = np.quantile(known, 1 - UNUSUAL_SHARE)
        is_far = (self.agnostic >= cut) & (self.agnostic > known.min())
        return self._unless_verified(is_far & ~self.is_doubtful & ~(self.margins > 0))

    @cached_property
    def copies(self) -> Sequence[NDArray[np.int64]]:
        """Rows of each group of copies as `copy_groups`, those whose labels differ first."""
        return sorted(copy_groups(self.ids, self.copy_of), key=self._agree)

    @property
    def num_conflicting(self) -> int:
        """Number of groups of copies whose labels differ."""
        return bisect_left(self.copies, True, key=self._agree)  # noqa: FBT003 - a key

    def _agree(self, rows: NDArray[np.int64]) -> bool:
        return bool((self.labels[rows] == self.labels[rows[0]]).all())

    def _unless_verified(self, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
        return mask if self.verified is None else mask & ~self.verified

    @cached_property
    def hardest_cut(self) -> float:
        """The `rmd` above which the hardest samples are; NaN where no sample has a score."""
        known = self.rmd[~np.isnan(self.rmd)]
        return float(np.quantile(known, 1 - HARDEST_SHARE)) if len(known) else float("nan")

    @cached_property
    def by_class(self) -> Mapping[int, NDArray[np.int64]]:
        """Rows of the scored samples of each class, easiest first."""
        order = np.lexsort((self.rmd, self.labels))
        order = order[~np.isnan(self.rmd[order])]
        classes, starts = np.unique(self.labels[order], return_index=True)
        bounds = pairwise([*starts.tolist(), len(order)])
        return {
            label: order[start:end]
            for label, (start, end) in zip(classes.tolist(), bounds, strict=True)
        }

    def name_of(self, label: int) -> str:
        """The name of a class index."""
        return self.names.get(label, str(label))


def columns_to_read(present: Collection[str], *others: str) -> list[str]:
    """Columns that the report reads of a score file, and those of `others` that it has."""
    suspicion = (SUSPICION, SUSPECTED, *LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values())
    optional = (*suspicion, MARK_COLUMN, AGNOSTIC, *COPIES, *MEASURES, FAULT_COLUMN, *others)
    found = [name for name in optional if name in present]
    # What is needed and absent is an error to whoever reads these columns.
    measure = measure_of(present)
    compared = () if measure == AGNOSTIC else COMPARED
    return list(dict.fromkeys((*COLUMNS, *compared, measure, *found)))


def to_samples(scores: ScoreFile) -> ScoredSamples:
    """The arrays of a score file with the columns of `columns_to_read`."""
    table = scores.table
    present = table.column_names
    require_columns(columns_to_read(present), present, "the score file")

    def numbers(name: str) -> NDArray[np.float64]:
        if name not in present:
            return np.full(len(table), np.nan)
        column: NDArray[np.float64] = table[name].cast(pa.float64()).fill_null(np.nan).to_numpy()
        return column

    def indices(name: str) -> NDArray[np.int64]:
        if name not in present:
            return np.full(len(table), -1)
        column: NDArray[np.int64] = table[name].cast(pa.int64()).fill_null(-1).to_numpy()
        return column

    nearest, suspicion, suggested = indices("nearest_label"), None, None
    likeliest = p_likeliest = None
    if {SUSPICION, SUSPECTED} <= {*present} and table[SUSPICION].null_count < len(table):
        suspicion, suggested = numbers(SUSPICION), indices(SUSPECTED)
        nearest = np.where(suspicion > PROBABLE_SUSPICION, suggested, nearest)
        if {*LIKELIEST_CLASSES, *LIKELIEST_CLASSES.values()} <= {*present}:
            likeliest = np.stack([indices(name) for name in LIKELIEST_CLASSES], axis=1)
            p_likeliest = np.stack([numbers(name) for name in LIKELIEST_CLASSES.values()], axis=1)
    measure = measure_of(present)
    labels, margins = indices("label"), numbers("label_margin")
    verified = table[MARK_COLUMN].is_valid().to_numpy() if MARK_COLUMN in present else None
    shares = shares_of_wrong(scores.provenance.suspicion)
    separation = Separation.of(
        int((margins > 0).sum()),
        np.unique(labels[~np.isnan(margins)], return_counts=True)[1].tolist(),
        shares,
        0 if suspicion is None else int((suspicion > PROBABLE_SUSPICION).sum()),
    )
    # A trained classifier has no features that another backbone could replace, and of missing tags
    # only those have a row that may belong there.
    is_judged = separation is not None and measure == "rmd" and scores.provenance.tags is None
    caution = separation.caution(scores.provenance) if separation and is_judged else None
    return ScoredSamples(
        ids=_texts(table["sample_id"]),
        labels=labels,
        nearest=nearest,
        margins=margins,
        rmd=numbers(measure),
        agnostic=numbers(AGNOSTIC) if AGNOSTIC in present else None,
        percentiles=numbers("percentile"),
        copy_of=copies_in(table),
        names=class_names_of(scores),
        suggested=suggested,
        likeliest=likeliest,
        p_likeliest=p_likeliest,
        verified=verified,
        decided=Decided.of(scores.provenance),
        suspicion=suspicion,
        measure=measure,
        shares_of_wrong=shares,
        caution=caution,
        boxes=scores.provenance.boxes,
    )


def _texts(column: pa.ChunkedArray) -> pa.StringArray:
    return pa.concat_arrays([pa.array([], pa.string()), *column.cast(pa.string()).chunks])
