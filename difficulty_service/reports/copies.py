"""Groups of copies as pages show them, and what a person may decide about one."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from difficulty_service.marks.mark_kinds import Mark
from difficulty_service.marks.record import MarkedSample
from difficulty_service.scores.samples import ScoredSamples

PICTURED = 6
"""Largest number of pictures of a group."""

MOST_DECIDED = 200
"""Samples of the largest group that a report decides about, as it holds the id of each."""


@dataclass(frozen=True)
class CopyGroup:
    """Samples that are exact or near copies of each other.

    Attributes:
        rows: Rows of those with pictures; the first of each label comes before the others.
        labels: Each label and its number of samples, in the order of their first samples.
    """

    rows: Sequence[int]
    labels: Sequence[tuple[int, int]]

    @property
    def num_samples(self) -> int:
        """Number of samples, with pictures or without."""
        return sum(number for _, number in self.labels)

    @property
    def differ(self) -> bool:
        """Whether the labels differ, so that they cannot all be right."""
        return len(self.labels) > 1

    @property
    def is_decidable(self) -> bool:
        """Whether a report can decide about the group."""
        return self.num_samples <= MOST_DECIDED


def to_group(samples: ScoredSamples, rows: NDArray[np.int64]) -> CopyGroup:
    """The group of some rows, which are ascending."""
    labels = samples.labels[rows]
    _, firsts = np.unique(labels, return_index=True)
    pictured = list(dict.fromkeys([*sorted(firsts.tolist()), *range(len(rows))]))[:PICTURED]
    return CopyGroup(rows[pictured].tolist(), list(Counter(labels.tolist()).items()))


def give_label(
    samples: ScoredSamples, rows: NDArray[np.int64], name: str
) -> dict[int, MarkedSample]:
    """The marks by row that give all copies of a group one label."""
    return {
        row: MarkedSample(samples.ids[row].as_py(), Mark.KEEP)
        if samples.name_of(int(samples.labels[row])) == name
        else MarkedSample(samples.ids[row].as_py(), Mark.RELABEL, name)
        for row in rows.tolist()
    }


def keep_one(samples: ScoredSamples, rows: NDArray[np.int64], name: str) -> dict[int, MarkedSample]:
    """The marks by row that keep the first copy with a label and drop all others of its group."""
    names = [samples.name_of(label) for label in samples.labels[rows].tolist()]
    kept = names.index(name)
    return {
        row: MarkedSample(samples.ids[row].as_py(), Mark.KEEP if place == kept else Mark.DROP)
        for place, row in enumerate(rows.tolist())
    }


def copies_data(samples: ScoredSamples, groups: Sequence[CopyGroup]) -> list[dict[str, Any] | None]:
    """What the script of a report needs of the first groups; None for one that is too large.

    `labels` has the names, `given` the place of each sample's name among them, and `pictured` the
    place of each pictured sample among all.
    """
    data: list[dict[str, Any] | None] = []
    for group, rows in zip(groups, samples.copies, strict=False):
        if not group.is_decidable:
            data.append(None)
            continue
        labels = [label for label, _ in group.labels]
        margins = samples.margins[rows].round(4).tolist()
        places = {row: place for place, row in enumerate(rows.tolist())}
        data.append(
            {
                "ids": [samples.ids[row].as_py() for row in places],
                "given": [labels.index(label) for label in samples.labels[rows].tolist()],
                "labels": [samples.name_of(label) for label in labels],
                "margins": [None if np.isnan(margin) else margin for margin in margins],
                "pictured": [places[row] for row in group.rows],
            }
        )
    return data
