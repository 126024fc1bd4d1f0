"""How hard each class is."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from difficulty_service.reporting.samples import ScoredSamples


@dataclass(frozen=True)
class ClassFacts:
    """The difficulty of one class; larger is harder.

    Attributes:
        label: Class index.
        name: Name of the class.
        num_samples: Number of samples that have a score.
        mean: Mean `rmd`.
        median: Median `rmd`.
        hardest_share: Share of its samples that are among the hardest of all.
        doubtful_share: Share of its samples that look more like another class.
        rows: Rows of its samples, easiest first.
    """

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
