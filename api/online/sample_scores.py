"""Scores of single samples, as arrays that cross processes and as JSON values."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class SampleScores:
    """Distances and difficulty of samples; larger is harder. Each of shape (samples,).

    Attributes:
        labels: Class indices; -1 where unknown, for which the nearest class was used.
        nearest: Index of the nearest class.
        md: Squared distance to the class.
        md_agnostic: Squared distance to the mean of all samples.
        rmd: Difference md - md_agnostic.
        label_margin: md minus that of the nearest other class.
        percentile: Fraction of the samples of the job that are easier.
    """

    labels: Indices
    nearest: Indices
    md: Numbers
    md_agnostic: Numbers
    rmd: Numbers
    label_margin: Numbers
    percentile: Numbers

    def rows(self, class_names: Sequence[str]) -> list[dict[str, Any]]:
        """One mapping per sample, of JSON values; None instead of values that are not finite."""
        margins = np.where(self.labels >= 0, self.label_margin, np.nan)
        numbers = {
            "md": self.md,
            "md_agnostic": self.md_agnostic,
            "rmd": self.rmd,
            "label_margin": margins,
            "percentile": self.percentile,
        }
        classes = zip(self.labels.tolist(), self.nearest.tolist(), strict=True)
        values = zip(*(column.tolist() for column in numbers.values()), strict=True)
        return [
            {
                "label": _class_label(label, class_names),
                "nearest_label": _class_label(nearest, class_names),
                **dict(zip(numbers, map(_finite, row), strict=True)),
            }
            for (label, nearest), row in zip(classes, values, strict=True)
        ]


@dataclass(frozen=True)
class EncodedScores:
    """Scores of images or texts, of which some cannot be read.

    Attributes:
        problems: For each sample the reason why it cannot be read, or None.
        scores: Scores of the others; None where there is no other.
    """

    problems: tuple[str | None, ...]
    scores: SampleScores | None

    def rows(self, class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Like `SampleScores.rows`; a sample that cannot be read has an `error` instead."""
        scored = iter(self.scores.rows(class_names) if self.scores is not None else ())
        return [{"error": each} if each is not None else next(scored) for each in self.problems]


def _class_label(label: int, class_names: Sequence[str]) -> dict[str, Any] | None:
    return None if label < 0 else {"index": label, "name": class_names[label]}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
