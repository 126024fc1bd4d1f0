"""Which samples each section of the report shows.

Which classes are taken for which.

How hard each class is.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from difficulty_service.scores.samples import ScoredSamples


@dataclass(frozen=True)
class ConfusedPair:
    """Two classes whose samples look like the other one; the index of the second is larger.

    Rows of all these samples are sorted, the largest margin first.
    """

    first: int
    second: int
    first_as_second: int
    second_as_first: int
    rows: NDArray[np.int64]

    @property
    def num_samples(self) -> int:
        """Number of samples in both directions."""
        return self.first_as_second + self.second_as_first


def count_confusions(samples: ScoredSamples) -> Counter[tuple[int, int]]:
    """Number of samples of each label and class that fits better, where there are any."""
    doubtful = samples.is_doubtful
    labels, nearest = samples.labels[doubtful], samples.nearest[doubtful]
    # One number for each pair sorts ten times as fast as two columns.
    num_classes = 1 + max(labels.max(initial=0), nearest.max(initial=0))
    codes, counts = np.unique(labels.astype(np.int64) * num_classes + nearest, return_counts=True)
    pairs = zip((codes // num_classes).tolist(), (codes % num_classes).tolist(), strict=True)
    return Counter(dict(zip(pairs, counts.tolist(), strict=True)))


def rank_pairs(
    samples: ScoredSamples, doubtful: NDArray[np.int64], limit: int
) -> Sequence[ConfusedPair]:
    """The pairs of classes with the most doubtful samples."""
    confusions = count_confusions(samples)
    totals: Counter[tuple[int, int]] = Counter()
    for (label, nearest), count in confusions.items():
        totals[min(label, nearest), max(label, nearest)] += count
    ranked = sorted(totals, key=lambda pair: (-totals[pair], pair))[:limit]
    given, fitting = samples.labels[doubtful], samples.nearest[doubtful]
    low, high = np.minimum(given, fitting), np.maximum(given, fitting)
    return [
        ConfusedPair(
            first,
            second,
            confusions[first, second],
            confusions[second, first],
            doubtful[(low == first) & (high == second)],
        )
        for first, second in ranked
    ]


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


@dataclass(frozen=True)
class Limits:
    """Largest number of pictures of each kind.

    Attributes:
        typical: Easiest samples of a class beside a doubtful one; half as many of a class of which
            no other pictures are shown.
    """

    doubtful: int = 240
    unusual: int = 24
    per_class: int = 12
    typical: int = 6
    per_pair: int = 4
    copies: int = 24

    def scaled(self, factor: float) -> "Limits":
        """Smaller limits, of which none becomes 0."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return Limits(**{name: max(1, int(value * factor)) for name, value in values.items()})


@dataclass(frozen=True)
class Selection:
    """Rows of the samples of every section.

    Attributes:
        hardest: The hardest samples of each class with pictures, hardest first; the classes are
            in the same order.
        easiest: The easiest samples of the same classes without copies, easiest first.
        typical: The easiest samples of each class that a doubtful sample has or looks like.
        copies: Copies with the sample that they are copies of; those with another label first.
    """

    doubtful: Rows
    num_doubtful: int
    unusual: Rows
    hardest: dict[int, Rows]
    easiest: dict[int, Rows]
    typical: Mapping[int, Rows]
    pairs: Sequence[ConfusedPair]
    pictured_pairs: Sequence[Rows]
    copies: Sequence[tuple[int, int]]

    @property
    def kinds(self) -> tuple[Rows, Rows, Rows]:
        """Some doubtful, unusual and typical samples, the last from the easiest classes."""
        typical = [row for rows in reversed(self.easiest.values()) for row in rows[:1]]
        return self.doubtful[:OF_A_KIND], self.unusual[:OF_A_KIND], typical[:OF_A_KIND]

    def rows(self) -> Iterator[int]:
        """The row of every picture on the page; the same row comes once for each."""
        for rows in self.kinds:
            yield from rows
        yield from self.doubtful
        yield from self.unusual
        for strips in (self.hardest, self.easiest):
            for rows in strips.values():
                yield from rows
        for rows in self.pictured_pairs:
            yield from rows
        for copies in self.copies:
            yield from copies
        yield from self.typical_elsewhere()

    def typical_elsewhere(self) -> Iterator[int]:
        """Rows of typical samples that no strip of a class shows."""
        shown = {row for rows in self.easiest.values() for row in rows}
        for rows in self.typical.values():
            yield from (row for row in rows if row not in shown)


def select(samples: ScoredSamples, ranked: Sequence[ClassFacts], limits: Limits) -> Selection:
    """Chooses the samples of every section."""
    doubtful = _descending(samples.doubts, samples.is_doubtful)
    unusual = np.empty(0, np.int64)
    if samples.agnostic is not None:
        unusual = _descending(samples.agnostic, samples.is_unusual)
    cards = doubtful[: limits.doubtful]
    pairs = rank_pairs(samples, doubtful, LISTED_PAIRS)
    first_of_their_kind = samples.copy_of.is_null().to_numpy(zero_copy_only=False)

    def easiest(label: int, count: int) -> Rows:
        rows = samples.by_class.get(label, np.empty(0, np.int64))
        return _listed(rows[first_of_their_kind[rows]][:count])

    shown = ranked[:SHOWN_CLASSES]
    with_strips = {each.label for each in shown}
    compared = {*samples.labels[cards].tolist(), *samples.nearest[cards].tolist()}
    return Selection(
        doubtful=_listed(cards),
        num_doubtful=len(doubtful),
        unusual=_listed(unusual[: limits.unusual]),
        hardest={each.label: _listed(each.rows[::-1][: limits.per_class]) for each in shown},
        easiest={each.label: easiest(each.label, limits.per_class) for each in shown},
        typical={
            # Pictures of classes without strips are on the page for this alone.
            label: easiest(label, limits.typical if label in with_strips else limits.typical // 2)
            for label in sorted(compared)
        },
        pairs=pairs,
        pictured_pairs=[_listed(each.rows[: limits.per_pair]) for each in pairs[:PICTURED_PAIRS]],
        copies=_copies(samples)[: limits.copies],
    )


def _copies(samples: ScoredSamples) -> Sequence[tuple[int, int]]:
    """Rows of originals and their copies; those with different labels first."""
    copies = np.flatnonzero(samples.copy_of.is_valid().to_numpy(zero_copy_only=False))
    if not len(copies):
        return []
    originals = pc.index_in(samples.copy_of.take(pa.array(copies)), value_set=samples.ids)
    found = originals.is_valid().to_numpy(zero_copy_only=False)
    copies, first = copies[found], originals.drop_null().cast(pa.int64()).to_numpy()
    same = samples.labels[copies] == samples.labels[first]
    order = np.argsort(same, kind="stable")
    return list(zip(first[order].tolist(), copies[order].tolist(), strict=True))


def _descending(values: NDArray[np.float64], mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Rows of a mask, the largest value first; equal values keep their order."""
    rows = np.flatnonzero(mask)
    return rows[np.argsort(-values[rows], kind="stable")]


def _listed(rows: NDArray[np.int64]) -> Rows:
    listed: list[int] = rows.tolist()
    return listed
