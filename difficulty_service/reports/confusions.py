"""Which classes look like each other: samples that another class fits better, by pairs."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
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
