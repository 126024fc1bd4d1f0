"""What the first pages of a finished job show: classes, confused pairs and a summary."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from difficulty_service.reporting.classes import ClassFacts, rank_classes
from difficulty_service.reporting.samples import ScoredSamples
from difficulty_service.reporting.sections import (
    ClassRow,
    MatrixCell,
    Summary,
    class_rows,
    matrix_of,
    summarise,
)
from difficulty_service.reporting.selection import Limits, Selection, select

LIMITS = Limits(doubtful=5, unusual=5, per_class=12, per_pair=8)


@dataclass(frozen=True)
class Overview:
    """The facts of the whole dataset.

    Attributes:
        ranked: All classes, the hardest first.
        selection: Samples that stand for the others.
        summary: The numbers of the summary.
        class_rows: The first classes with the outlines of their scores.
        matrix: Confusions of all classes; None where there are too many.
    """

    ranked: Sequence[ClassFacts]
    selection: Selection
    summary: Summary
    class_rows: Sequence[ClassRow]
    matrix: Sequence[Sequence[MatrixCell]] | None

    @property
    def typical(self) -> list[int]:
        """The easiest sample of each of the easiest classes."""
        easiest = self.selection.easiest
        return [easiest[facts.label][0] for facts in self.ranked[::-1] if easiest.get(facts.label)]


def make_overview(samples: ScoredSamples) -> Overview:
    """Computes the overview of a score file."""
    ranked = rank_classes(samples)
    selection = select(samples, ranked, LIMITS)
    summary = summarise(samples, ranked, selection)
    return Overview(
        ranked,
        selection,
        summary,
        class_rows(samples, ranked, summary.scale),
        matrix_of(samples),
    )


def typical_rows(samples: ScoredSamples, label: int, number: int, without: int) -> list[int]:
    """Rows of the easiest samples of a class, without copies of others.

    Args:
        samples: The scores.
        label: Class index.
        number: Largest number of samples.
        without: Row that is not among them.
    """
    rows = samples.by_class.get(label)
    if rows is None:
        return []
    easiest = rows[: 4 * number]
    is_first = [not samples.copy_of[row].is_valid and row != without for row in easiest.tolist()]
    kept: list[int] = easiest[is_first][:number].tolist()
    return kept


def confused_rows(samples: ScoredSamples, label: int, nearest: int) -> NDArray[np.int64]:
    """Rows of a class that another class fits better, those that it fits best first."""
    is_confused = (samples.labels == label) & (samples.nearest == nearest) & (samples.margins > 0)
    rows = np.flatnonzero(is_confused)
    return rows[np.argsort(-samples.margins[rows], kind="stable")]
