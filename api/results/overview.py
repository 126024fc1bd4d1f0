"""What the first pages of a finished job show: classes, confused pairs and a summary."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.contract import Contract
from difficulty_service.pages.charts import Bar, Scale, histogram
from difficulty_service.reports.confusions import ConfusedPair
from difficulty_service.reports.sections import (
    SHOWN_CLASSES,
    ClassFacts,
    ClassRow,
    MatrixCell,
    ReportLimits,
    ReportSummary,
    ShownSamples,
    class_rows,
    matrix_of,
    rank_classes,
    select,
    summarise,
)
from difficulty_service.scores.label_counts import LabelCounts
from difficulty_service.scores.provenance import RandomCheck
from difficulty_service.scores.samples import ScoredSamples

LIMITS = ReportLimits(doubtful=5, unusual=5, per_class=12, per_pair=8, copies=0)

BINS = 48  # number of bars of the histograms above the images
NO_ROWS: NDArray[np.int64] = np.empty(0, np.int64)
T = TypeVar("T")


@dataclass(frozen=True)
class Overview:
    """The facts of the whole dataset.

    Its classes and pairs have no `rows`, of which there may be as many as samples.
    """

    num_classes: int
    selection: ShownSamples  # samples that stand for the others
    summary: ReportSummary
    class_rows: Sequence[ClassRow]  # the hardest classes, the hardest first
    matrix: Sequence[Sequence[MatrixCell]] | None  # None where there are too many classes
    bars: Sequence[Bar]  # histogram of `rmd`; empty where the scores do not differ

    @property
    def pictured_classes(self) -> Sequence[ClassFacts]:
        """The hardest classes, of which pictures are shown."""
        return [row.facts for row in self.class_rows[:SHOWN_CLASSES]]


def make_overview(samples: ScoredSamples) -> Overview:
    """Computes the overview of a score file."""
    ranked = rank_classes(samples)
    selection = select(samples, ranked, LIMITS)
    summary = summarise(samples, ranked, selection)
    rows = class_rows(samples, ranked, summary.scale)
    hardest, easiest = summary.hardest, summary.easiest
    return Overview(
        len(ranked),
        replace(selection, pairs=[replace(pair, rows=NO_ROWS) for pair in selection.pairs]),
        replace(
            summary,
            hardest=hardest and replace(hardest, rows=NO_ROWS),
            easiest=easiest and replace(easiest, rows=NO_ROWS),
            confused=summary.confused and replace(summary.confused, rows=NO_ROWS),
        ),
        [replace(row, facts=replace(row.facts, rows=NO_ROWS)) for row in rows],
        matrix_of(samples),
        [] if summary.scale is None else histogram(samples.rmd, summary.scale, BINS),
    )


def to_json(overview: Overview) -> str:
    """The overview as JSON, in which a number may be NaN."""
    return json.dumps(asdict(overview), default=_plain)


def _plain(value: NDArray[Any] | Contract) -> Any:  # noqa: ANN401 - as JSON has it
    return value.to_json() if isinstance(value, Contract) else value.tolist()


def from_json(text: str) -> Overview:
    """The overview that `to_json` has written."""
    values = json.loads(text)
    rows = [
        ClassRow(_read(ClassFacts, row["facts"]), row["outline"]) for row in values["class_rows"]
    ]
    matrix = values["matrix"]
    return Overview(
        values["num_classes"],
        _selection(values["selection"]),
        _summary(values["summary"]),
        rows,
        None if matrix is None else [[MatrixCell(**cell) for cell in row] for row in matrix],
        [Bar(**bar) for bar in values["bars"]],
    )


def _selection(values: Mapping[str, Any]) -> ShownSamples:
    by_class = {
        name: {int(label): rows for label, rows in values[name].items()}
        for name in ("hardest", "easiest", "typical")
    }
    pairs = [_read(ConfusedPair, pair) for pair in values["pairs"]]
    return ShownSamples(**{**values, **by_class, "pairs": pairs})


def _summary(values: Mapping[str, Any]) -> ReportSummary:
    kinds = {
        "hardest": ClassFacts,
        "easiest": ClassFacts,
        "confused": ConfusedPair,
        "scale": Scale,
        "labels": LabelCounts,
    }
    if values["labels"] and (check := values["labels"]["check"]):
        values["labels"]["check"] = RandomCheck.of(check)
    known = {name: values[name] and _read(kind, values[name]) for name, kind in kinds.items()}
    return ReportSummary(**{**values, **known, "bars": [Bar(**bar) for bar in values["bars"]]})


def _read(kind: type[T], values: dict[str, Any]) -> T:
    return kind(**values | ({"rows": NO_ROWS} if "rows" in values else {}))


def typical_rows(samples: ScoredSamples, label: int, number: int, without: int) -> list[int]:
    """Rows of the easiest samples of a class, without copies of others."""
    rows = np.flatnonzero((samples.labels == label) & ~np.isnan(samples.rmd))
    easiest = rows[np.argsort(samples.rmd[rows], kind="stable")][: 4 * number]
    is_first = [not samples.copy_of[row].is_valid and row != without for row in easiest.tolist()]
    return easiest[is_first][:number].tolist()


def confused_rows(samples: ScoredSamples, label: int, nearest: int) -> NDArray[np.int64]:
    """Rows of a class that another class fits better, the most doubtful first."""
    is_confused = (samples.labels == label) & (samples.nearest == nearest) & samples.is_doubtful
    rows = np.flatnonzero(is_confused)
    return rows[np.argsort(-samples.doubts[rows], kind="stable")]
