"""The comparison of runs as a page for any browser, of the same kind as the report of scores.

The table of differences of a comparison: every run beside the best one of each metric.
"""

import base64
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from difficulty_service.base.files import replacing
from difficulty_service.review.html_page import render_template
from trainer.reports.comparison import Comparison, ComparisonIntervals, summarise
from trainer.reports.comparison_table import (
    COLUMNS,
    HEADER,
    MAIN_COLUMNS,
    NO_VALUE,
    Column,
    best_run,
    leading_run,
    legend,
    objective_cells,
    stage_table,
)

CONTAINS_ZERO = "interval contains 0"


@dataclass(frozen=True)
class DifferenceCell:
    """One metric of one run minus that of the best run, in the unit of its column.

    Attributes:
        difference: With its sign; a dash where the run has no value, empty for the best run.
        interval: Ends of its interval, or None.
        verdict: What the interval says, in words; empty where there is none.
    """

    difference: str
    interval: tuple[str, str] | None = None
    verdict: str = ""


@dataclass(frozen=True)
class DifferenceRow:
    """One metric."""

    column: Column
    best: int
    cells: Sequence[DifferenceCell]


def difference_rows(
    comparison: Comparison, stage: str, metrics: Sequence[str], intervals: ComparisonIntervals
) -> Sequence[DifferenceRow]:
    """The differences of all runs from the best, without metrics that fewer than two runs have."""
    rows = []
    for column in map(COLUMNS.__getitem__, metrics):
        best = leading_run(comparison, stage, column)
        if best is not None:
            cells = [
                _cell(comparison, intervals, (number, best), stage, column)
                for number in range(len(comparison.runs))
            ]
            rows.append(DifferenceRow(column, best, cells))
    return rows


def _cell(
    comparison: Comparison,
    intervals: ComparisonIntervals,
    pair: tuple[int, int],
    stage: str,
    column: Column,
) -> DifferenceCell:
    if pair[0] == pair[1]:
        return DifferenceCell("")
    own, best = (summarise(comparison.runs[number], stage, column.metric) for number in pair)
    if own is None or best is None:
        return DifferenceCell(NO_VALUE)
    difference = column.signed(own.mean - best.mean)
    interval = intervals.difference(*pair, stage, column.metric)
    if interval is None:
        return DifferenceCell(difference)
    low, high = interval
    is_worse = high < 0 if column.better == "higher" else low > 0
    verdict = CONTAINS_ZERO if low <= 0 <= high else "worse" if is_worse else ""
    return DifferenceCell(difference, (column.signed(low), column.signed(high)), verdict)


STYLES, SCRIPTS = ("base.css", "report.css", "runs.css"), ("theme.js",)


@dataclass(frozen=True)
class Diagram:
    """A picture of a comparison."""

    title: str
    caption: str
    path: Path

    @property
    def uri(self) -> str:
        """The picture as a data URI."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.path.read_bytes()).decode()}"


@dataclass(frozen=True)
class BestMetrics:
    """The metrics in which a run is better than every other, beyond the intervals."""

    run: str
    titles: Sequence[str]


def write_page(
    path: Path,
    comparison: Comparison,
    intervals: ComparisonIntervals | None,
    diagrams: Sequence[Diagram],
) -> None:
    """Writes a comparison as one page, which appears whole or not at all."""
    names = [run.name for run in comparison.runs]
    tables = [
        stage_table(comparison, stage, MAIN_COLUMNS, intervals) for stage in comparison.stages
    ]
    objectives = [_objective(run.objectives) for run in comparison.runs]
    values = {
        "runs": comparison.runs,
        "num_seeds": sum(len(run.records) for run in comparison.runs),
        "num_metrics": len(MAIN_COLUMNS),
        "has_intervals": intervals is not None,
        "best": [] if intervals is None else best_metrics(comparison, intervals),
        "legend": legend(intervals),
        "objective_header": HEADER,
        "objectives": list(zip(names, objectives, strict=True)),
        "tables": tables,
        "differences": []
        if intervals is None
        else difference_rows(comparison, comparison.stages[0], MAIN_COLUMNS, intervals),
        "diagrams": diagrams,
        "stem": path.stem,
    }
    page = render_template(
        "runs.html.j2", values, styles=STYLES, scripts=SCRIPTS, package="trainer.reports"
    )
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8", errors="replace")


def best_metrics(comparison: Comparison, intervals: ComparisonIntervals) -> Sequence[BestMetrics]:
    """The runs that are the best in some of MAIN_COLUMNS as trained, most metrics first."""
    best = {
        column.title: best_run(comparison, comparison.stages[0], column, intervals)
        for column in map(COLUMNS.__getitem__, MAIN_COLUMNS)
    }
    counts = Counter(number for number in best.values() if number is not None)
    return [
        BestMetrics(
            comparison.runs[number].name, [title for title in best if best[title] == number]
        )
        for number, _ in counts.most_common()
    ]


def _objective(objectives: Mapping[int, Mapping[str, object]]) -> list[str]:
    """What the first seed minimised, without the marks of Markdown."""
    return [cell.replace("`", "") for cell in objective_cells(objectives[min(objectives)])]
