"""The table of differences of a comparison: every run beside the best one of each metric."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.reports.columns import COLUMNS, NO_VALUE, Column
from trainer.reports.comparison import Comparison, summarise
from trainer.reports.comparison_intervals import ComparisonIntervals
from trainer.reports.comparison_table import leading_run

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
    """One metric.

    Attributes:
        column: The metric.
        best: Position of the run with the best mean.
        cells: The cells of all runs, in the order of the comparison.
    """

    column: Column
    best: int
    cells: Sequence[DifferenceCell]


def difference_rows(
    comparison: Comparison, stage: str, metrics: Sequence[str], intervals: ComparisonIntervals
) -> Sequence[DifferenceRow]:
    """The differences of all runs from the best, without metrics that fewer than two runs have.

    Args:
        comparison: Runs to compare.
        stage: Key of `record.STAGES`.
        metrics: Keys of `columns.COLUMNS`.
        intervals: Intervals of the differences.
    """
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
