"""Groups of copies as pages show them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from difficulty_service.scores.samples import ScoredSamples

PICTURED = 6
"""Largest number of pictures of a group."""


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


def to_group(samples: ScoredSamples, rows: NDArray[np.int64]) -> CopyGroup:
    """The group of some rows, which are ascending."""
    labels = samples.labels[rows]
    _, firsts = np.unique(labels, return_index=True)
    pictured = list(dict.fromkeys([*sorted(firsts.tolist()), *range(len(rows))]))[:PICTURED]
    return CopyGroup(rows[pictured].tolist(), list(Counter(labels.tolist()).items()))
