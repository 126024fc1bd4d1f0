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
    """Distances and difficulty of samples; larger is harder. Each of shape (samples,)."""

    labels: Indices  # class indices; -1 where unknown, for which the nearest class was used
    nearest: Indices  # index of the nearest class
    md: Numbers  # squared distance to the class
    md_agnostic: Numbers  # squared distance to the mean of all samples
    rmd: Numbers  # md - md_agnostic
    label_margin: Numbers  # md minus that of the nearest other class
    percentile: Numbers  # fraction of the samples of the job that are easier

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
    """Scores of images or texts, of which some cannot be read."""

    problems: tuple[str | None, ...]  # why each cannot be read, or None
    scores: SampleScores | None  # of the others; None where there is no other

    def rows(self, class_names: Sequence[str]) -> list[dict[str, Any]]:
        """Like `SampleScores.rows`; a sample that cannot be read has an `error` instead."""
        scored = iter(self.scores.rows(class_names) if self.scores is not None else ())
        return [{"error": each} if each is not None else next(scored) for each in self.problems]


def _class_label(label: int, class_names: Sequence[str]) -> dict[str, Any] | None:
    return None if label < 0 else {"index": label, "name": class_names[label]}


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None
