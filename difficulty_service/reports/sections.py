"""What each section of the report shows: samples, classes, numbers, and where they come from."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.csv_cells import FORMULA
from difficulty_service.pages.cards import Card
from difficulty_service.pages.charts import (
    Bar,
    Scale,
    densities,
    histogram,
    outline,
    scale_of,
    shade_of,
)
from difficulty_service.reports.confusions import ConfusedPair, count_confusions, rank_pairs
from difficulty_service.reports.copies import CopyGroup, to_group
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.samples import ScoredSamples
from difficulty_service.scores.score_columns import FAULT_COLUMN
from difficulty_service.scores.tiers import BETWEEN, PROBABLY_WRONG


@dataclass(frozen=True)
class ClassFacts:
    """The difficulty of one class; larger is harder. Rows of its samples, easiest first."""

    label: int
    name: str
    num_samples: int
    mean: float
    median: float
    hardest_share: float
    doubtful_share: float
    rows: NDArray[np.int64]


def rank_classes(samples: ScoredSamples) -> Sequence[ClassFacts]:
    """Facts about every class with scores, the largest mean first."""
    facts = [_class_facts(samples, label, rows) for label, rows in samples.by_class.items()]
    return sorted(facts, key=lambda each: (-each.mean, each.label))


def _class_facts(samples: ScoredSamples, label: int, rows: NDArray[np.int64]) -> ClassFacts:
    rmd = samples.rmd[rows]
    return ClassFacts(
        label,
        samples.name_of(label),
        len(rows),
        float(rmd.mean()),
        float(np.median(rmd)),
        float((rmd > samples.hardest_cut).mean()),
        float(samples.is_doubtful[rows].mean()),
        rows,
    )


SHOWN_CLASSES = 25
"""Number of classes with pictures, and up to which all pairs of classes are in one table."""

LISTED_PAIRS = 30
PICTURED_PAIRS = 6
OF_A_KIND = 5
"""Number of pictures of each kind of sample in the first section."""

Rows = Sequence[int]

Order: TypeAlias = Literal["doubtful", "hardest", "random"]
"""Order of the samples to check: from the most doubtful label or the hardest sample down, or any,
which alone tells how many labels are wrong."""


@dataclass(frozen=True)
class ReportLimits:
    """Largest number of pictures of each kind.

    Attributes:
        copies: Groups of copies.
        faulty: Images with a fault.
        typical: Easiest samples of a class beside a doubtful one; half as many of a class of which
            no other pictures are shown.
    """

    doubtful: int = 240
    unusual: int = 24
    per_class: int = 12
    typical: int = 6
    per_pair: int = 4
    copies: int = 24
    faulty: int = 24

    def scaled(self, factor: float) -> "ReportLimits":
        """Smaller limits, of which none becomes 0."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return ReportLimits(**{name: max(1, int(value * factor)) for name, value in values.items()})


@dataclass(frozen=True)
class ShownSamples:
    """Rows of the samples of every section.

    Attributes:
        doubtful: The most doubtful samples, the clearest first.
        to_check: The samples to check, in their order.
        hardest: The hardest samples of each class with pictures whose label nobody has verified,
            hardest first; the classes are in the same order.
        easiest: The easiest samples of the same classes without copies, easiest first.
        typical: The easiest samples of each class that a doubtful sample has or looks like.
        copies: Groups of copies; those whose labels differ first.
        faulty: Images with a fault, as `faulty_rows`.
    """

    doubtful: Rows
    to_check: Rows
    num_doubtful: int
    unusual: Rows
    hardest: dict[int, Rows]
    easiest: dict[int, Rows]
    typical: Mapping[int, Rows]
    pairs: Sequence[ConfusedPair]
    pictured_pairs: Sequence[Rows]
    copies: Sequence[CopyGroup]
    faulty: Rows

    @property
    def kinds(self) -> tuple[Rows, Rows, Rows]:
        """Some doubtful, unusual and typical samples, the last from the easiest classes."""
        typical = [row for rows in reversed(self.easiest.values()) for row in rows[:1]]
        return self.doubtful[:OF_A_KIND], self.unusual[:OF_A_KIND], typical[:OF_A_KIND]

    def rows(self) -> Iterator[int]:
        """The row of every picture on the page; the same row comes once for each."""
        for rows in self.kinds:
            yield from rows
        yield from self.to_check
        yield from self.unusual
        yield from self.faulty
        for strips in (self.hardest, self.easiest):
            for rows in strips.values():
                yield from rows
        for rows in self.pictured_pairs:
            yield from rows
        for group in self.copies:
            yield from group.rows
        yield from self.typical_elsewhere()

    def typical_elsewhere(self) -> Iterator[int]:
        """Rows of typical samples that no strip of a class shows."""
        shown = {row for rows in self.easiest.values() for row in rows}
        for rows in self.typical.values():
            yield from (row for row in rows if row not in shown)


def select(
    samples: ScoredSamples,
    ranked: Sequence[ClassFacts],
    limits: ReportLimits,
    order: Order = "doubtful",
) -> ShownSamples:
    """Chooses the samples of every section; `order` is that of those to check."""
    doubtful = _descending(samples.doubts, samples.is_doubtful)
    unusual = np.empty(0, np.int64)
    if samples.agnostic is not None:
        unusual = _descending(samples.agnostic, samples.is_unusual)
    cards = _in_order(samples, doubtful, order_for(samples, order))[: limits.doubtful]
    pairs = rank_pairs(samples, doubtful, LISTED_PAIRS)
    first_of_their_kind = samples.copy_of.is_null().to_numpy(zero_copy_only=False)

    def easiest(label: int, count: int) -> Rows:
        rows = samples.by_class.get(label, np.empty(0, np.int64))
        return _listed(rows[first_of_their_kind[rows]][:count])

    def hardest(rows: NDArray[np.int64]) -> Rows:
        if samples.verified is not None:
            rows = rows[~samples.verified[rows]]
        return _listed(rows[::-1][: limits.per_class])

    shown = ranked[:SHOWN_CLASSES]
    with_strips = {each.label for each in shown}
    compared = {*samples.labels[cards].tolist(), *samples.others[cards].tolist()} - {-1}
    return ShownSamples(
        doubtful=_listed(doubtful[: limits.doubtful]),
        to_check=_listed(cards),
        num_doubtful=len(doubtful),
        unusual=_listed(unusual[: limits.unusual]),
        hardest={each.label: hardest(each.rows) for each in shown},
        easiest={each.label: easiest(each.label, limits.per_class) for each in shown},
        typical={
            # Pictures of classes without strips are on the page for this alone.
            label: easiest(label, limits.typical if label in with_strips else limits.typical // 2)
            for label in sorted(compared)
        },
        pairs=pairs,
        pictured_pairs=[_listed(each.rows[: limits.per_pair]) for each in pairs[:PICTURED_PAIRS]],
        copies=[to_group(samples, rows) for rows in samples.copies[: limits.copies]],
        faulty=[],
    )


def faulty_rows(scores: pa.Table) -> Rows:
    """Rows of the images with a fault, one fault after the other."""
    if FAULT_COLUMN not in scores.column_names:
        return []
    faults = scores[FAULT_COLUMN].to_pylist()
    return sorted((row for row, fault in enumerate(faults) if fault), key=faults.__getitem__)


def order_for(samples: ScoredSamples, order: Order) -> Order:
    """The order of the samples to check: without classes to compare, no label is doubtful."""
    return "hardest" if order == "doubtful" and not samples.compares_classes else order


def _in_order(
    samples: ScoredSamples, doubtful: NDArray[np.int64], order: Order
) -> NDArray[np.int64]:
    """Rows of the samples to check, without those that a person has verified."""
    if order == "doubtful":
        return doubtful
    open_ones = ~np.isnan(samples.rmd)
    if samples.verified is not None:
        open_ones &= ~samples.verified
    if order == "hardest":
        return _descending(samples.rmd, open_ones)
    # The same for the same samples, so that a page that is written again shows the same ones.
    return np.random.default_rng(int(open_ones.sum())).permutation(np.flatnonzero(open_ones))


def _descending(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows of a mask, the largest value first; equal values keep their order."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-values[rows], kind="stable")]


def _listed(rows: NDArray[np.int64]) -> Rows:
    listed: list[int] = rows.tolist()
    return listed


LISTED_CLASSES = 50
"""Number of classes in the table of classes."""

HISTOGRAM_BINS, CUT_BINS, OUTLINE_BINS = 80, 60, 64
CUTS = 200
"""Number of steps of the slider of what speaks against a label."""

OUTLINE_WIDTH, OUTLINE_HEIGHT = 400.0, 36.0


@dataclass(frozen=True)
class ReportSummary:
    """What a reader should know first.

    Attributes:
        num_classes: Number of classes that have samples, scored or not.
        labels: How many labels are of which kind; None without suspicion.
        caution: What to know before anything else; None if nothing is.
        round: Number of the round and what was decided before it, in words; None in the first.
        by_suspicion: Whether samples are doubted by their suspicion, and not by their margin.
        compares_classes: Whether samples are compared with classes that they may be of.
        has_labels: Whether samples have labels.
        num_copied: Number of samples that are a copy or near copy of another one.
        num_conflicting: Number of groups of copies whose labels differ.
        num_unusual: Number of the other samples that are unlike anything else; None where the
            score file does not tell.
    """

    num_samples: int
    num_classes: int
    num_compared: int
    num_doubtful: int
    num_unusual: int | None
    hardest: ClassFacts | None
    easiest: ClassFacts | None
    confused: ConfusedPair | None
    median: float
    hardest_cut: float
    scale: Scale | None
    bars: Sequence[Bar]
    labels: LabelCounts | None = None
    by_suspicion: bool = False
    compares_classes: bool = True
    has_labels: bool = True
    num_copied: int = 0
    num_conflicting: int = 0
    caution: str | None = None
    round: str | None = None

    @property
    def doubtful_kind(self) -> str:
        """What the doubtful samples are, in words."""
        if self.by_suspicion:
            return f"labels {PROBABLY_WRONG}"
        return "another class fits better" if self.labels is None else BETWEEN

    @property
    def num_typical(self) -> int:
        """Number of samples that fit their class and are not unusual."""
        between = self.labels.between if self.labels and self.by_suspicion else 0
        return self.num_samples - self.num_doubtful - between - (self.num_unusual or 0)


@dataclass(frozen=True)
class Cuts:
    """The slider that hides the less doubtful samples.

    Attributes:
        values: Suspicion or margin at each step, from 0 up.
        bars: Histogram of the values above 0, with logarithmic heights.
    """

    values: Sequence[float]
    counts: Sequence[int]
    bars: Sequence[Bar]


@dataclass(frozen=True)
class ClassRow:
    """A class in the table of classes: its facts and the outline of its scores."""

    facts: ClassFacts
    outline: str


@dataclass(frozen=True)
class MatrixCell:
    """Number of samples of a label that look like another class, and its shade from 0 to 9."""

    label: int
    nearest: int
    count: int
    shade: int


def summarise(
    samples: ScoredSamples, ranked: Sequence[ClassFacts], selection: ShownSamples
) -> ReportSummary:
    """The numbers of the first section."""
    several = len(ranked) > 1
    scale = scale_of(samples.rmd)
    known = samples.rmd[~np.isnan(samples.rmd)]
    return ReportSummary(
        num_samples=len(samples),
        num_classes=len(np.unique(samples.labels)),
        num_compared=int((~np.isnan(samples.margins)).sum()),
        num_doubtful=selection.num_doubtful,
        num_unusual=None if samples.agnostic is None else int(samples.is_unusual.sum()),
        hardest=ranked[0] if several else None,
        easiest=ranked[-1] if several else None,
        confused=selection.pairs[0] if selection.pairs else None,
        median=float(np.median(known)) if len(known) else float("nan"),
        hardest_cut=samples.hardest_cut,
        scale=scale,
        bars=[] if scale is None else histogram(samples.rmd, scale, HISTOGRAM_BINS),
        labels=samples.label_counts,
        by_suspicion=samples.by_suspicion,
        compares_classes=samples.compares_classes,
        has_labels=samples.has_labels,
        num_copied=sum(map(len, samples.copies)),
        num_conflicting=samples.num_conflicting if samples.compares_classes else 0,
        caution=samples.caution,
        round=samples.decided.round,
    )


def cuts_of(samples: ScoredSamples) -> Cuts:
    """The steps of the slider, up to the most doubtful sample."""
    doubts = np.sort(samples.doubts[samples.is_doubtful])
    if not len(doubts):
        return Cuts([0.0], [0], [])
    largest = float(doubts[-1])
    values = np.linspace(0, largest, CUTS + 1)
    # The last step still shows the most doubtful sample.
    counts = len(doubts) - np.searchsorted(doubts, values, side="left")
    bars = histogram(doubts, Scale(0, largest), CUT_BINS, logarithmic=True)
    return Cuts([round(value, 4) for value in values.tolist()], counts.tolist(), bars)


def class_rows(
    samples: ScoredSamples, ranked: Sequence[ClassFacts], scale: Scale | None
) -> Sequence[ClassRow]:
    """The classes of the table, the hardest first, with the outlines of their scores."""
    listed = ranked[:LISTED_CLASSES]
    if scale is None:
        return [ClassRow(facts, "") for facts in listed]
    shapes = densities([samples.rmd[facts.rows] for facts in listed], scale, OUTLINE_BINS)
    return [
        ClassRow(facts, outline(shape, OUTLINE_WIDTH, OUTLINE_HEIGHT))
        for facts, shape in zip(listed, shapes, strict=True)
    ]


def matrix_of(samples: ScoredSamples) -> Sequence[Sequence[MatrixCell]] | None:
    """Counts of labels and the classes that fit better; None where there are too many classes."""
    labels = np.unique(samples.labels).tolist()
    if len(labels) > SHOWN_CLASSES:
        return None
    confusions = count_confusions(samples)
    classes = sorted({*labels, *(pair[1] for pair in confusions)})
    if not 1 < len(classes) <= SHOWN_CLASSES or not confusions:
        return None
    sizes = Counter(samples.labels.tolist())
    shares = {pair: count / sizes[pair[0]] for pair, count in confusions.items()}
    largest = max(shares.values())
    shades = {pair: shade_of(share, largest) for pair, share in shares.items()}
    return [
        [
            MatrixCell(one, other, confusions[one, other], shades.get((one, other), 0))
            for other in classes
        ]
        for one in classes
    ]


def review_data(
    samples: ScoredSamples, cards: Sequence[Card], selection: ShownSamples, key: str, order: Order
) -> dict[str, Any]:
    """What the review needs besides the page: names, doubts and typical images by class."""
    labels = sorted(selection.typical)
    cuts = cuts_of(samples)
    classes = [samples.names[label] for label in sorted(samples.names)]
    places = {name: place for place, name in enumerate(classes)}
    return {
        "key": key,
        "order": order,
        "total": len(samples),
        "among": samples.num_unverified,
        "formula": FORMULA,
        "classes": classes,
        "doubt": "suspicion" if samples.by_suspicion else "margin",
        "labelled": samples.has_labels,
        "names": {label: samples.name_of(label) for label in labels},
        "typical": {label: list(selection.typical[label]) for label in labels},
        "cuts": cuts.values if order == "doubtful" else None,
        "counts": cuts.counts,
        "cards": [
            {
                "id": card.sample_id,
                "label": card.label,
                "nearest": card.nearest,
                "margin": _rounded(card.margin),
                "doubt": _rounded(card.doubt),
                "difficulty": _rounded(card.rmd),
                "percentile": _rounded(card.percentile),
                # Places among the classes, each followed by its share in percent.
                "likely": [
                    number
                    for name, share in card.likely
                    if name in places
                    for number in (places[name], share)
                ],
            }
            for card in cards
        ],
    }


def _rounded(number: float) -> float | None:
    return None if np.isnan(number) else round(number, 4)
