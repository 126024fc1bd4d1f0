"""The tables of a comparison: what runs minimised, and their metrics with intervals."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainer.reports.columns import COLUMNS, MAIN_COLUMNS, TEMPERATURE, Column
from trainer.reports.comparison import Comparison, Summary, summarise
from trainer.reports.comparison_intervals import ComparisonIntervals
from trainer.reports.objective_columns import HEADER, objective_cells

HEADINGS = {
    "raw": "As trained",
    "temperature_nll": "After temperature scaling by NLL",
    "temperature_ece": "After temperature scaling by ECE",
    "temperature_adaptive_ece": "After temperature scaling by adaptive ECE",
}

ARROWS = "↑ higher is better, ↓ lower is better."


@dataclass(frozen=True)
class Cell:
    """One metric of one run, in the unit of its column.

    Attributes:
        mean: Mean over the seeds; a dash where there is none.
        std: Sample standard deviation over the seeds; empty for one seed.
        interval: Ends of the interval of the mean, or None.
        is_best: Whether the mean is better than that of every other run, beyond the intervals.
    """

    mean: str
    std: str
    interval: tuple[str, str] | None
    is_best: bool


@dataclass(frozen=True)
class StageTable:
    """The metrics of one stage.

    Attributes:
        heading: Title of the table.
        columns: Metrics.
        rows: The cells of each run, in the order of the comparison.
    """

    heading: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]


def markdown_table(
    comparison: Comparison,
    metrics: Sequence[str] = MAIN_COLUMNS,
    intervals: ComparisonIntervals | None = None,
) -> str:
    """Formats one Markdown table of what the runs minimised, and one of metrics per stage.

    The best mean is bold only where the interval of its difference from every other run excludes
    0; without intervals nothing is bold.

    Args:
        comparison: Runs to compare.
        metrics: Keys of `columns.COLUMNS`.
        intervals: Intervals of these metrics; None shows none.
    """
    parts = [legend(intervals), f"### What the runs minimise\n\n{_objectives(comparison)}"]
    for stage in comparison.stages:
        table = stage_table(comparison, stage, metrics, intervals)
        rows = [
            [_name(run.name), run.seeds, *map(_markdown, cells)]
            for run, cells in zip(comparison.runs, table.rows, strict=True)
        ]
        header = ["run", "seeds", *(column.header for column in table.columns)]
        parts.append(f"### {table.heading}\n\n{_table(header, rows)}")
    return "\n\n".join(parts) + "\n"


def stage_table(
    comparison: Comparison,
    stage: str,
    metrics: Sequence[str],
    intervals: ComparisonIntervals | None,
) -> StageTable:
    """The metrics of every run at one stage, after temperature scaling with the temperature.

    Args:
        comparison: Runs to compare.
        stage: Key of `record.STAGES`.
        metrics: Keys of `columns.COLUMNS`.
        intervals: Intervals of these metrics; None shows none and marks nothing.
    """
    columns = [COLUMNS[metric] for metric in metrics]
    if stage != "raw":
        columns.append(TEMPERATURE)
    by_column = [_cells(comparison, stage, column, intervals) for column in columns]
    return StageTable(HEADINGS[stage], columns, list(zip(*by_column, strict=True)))


def best_run(
    comparison: Comparison, stage: str, column: Column, intervals: ComparisonIntervals
) -> int | None:
    """Position of the run that is better than every other, beyond the intervals; None for none.

    Args:
        comparison: Runs to compare.
        stage: Key of `record.STAGES`.
        column: Metric and its better direction.
        intervals: Intervals of the differences.
    """
    best = leading_run(comparison, stage, column)
    if best is None:
        return None
    sign = 1 if column.better == "higher" else -1
    for other in _means(comparison, stage, column).keys() - {best}:
        interval = intervals.difference(best, other, stage, column.metric)
        if interval is None or min(sign * end for end in interval) <= 0:
            return None
    return best


def leading_run(comparison: Comparison, stage: str, column: Column) -> int | None:
    """Position of the run with the best mean; None where fewer than two runs have one.

    Args:
        comparison: Runs to compare.
        stage: Key of `record.STAGES`.
        column: Metric and its better direction.
    """
    means = _means(comparison, stage, column)
    if len(means) < 2 or column.better == "neither":  # noqa: PLR2004
        return None
    sign = 1 if column.better == "higher" else -1
    return max(means, key=lambda number: sign * means[number])


def _means(comparison: Comparison, stage: str, column: Column) -> dict[int, float]:
    """Mean over the seeds of each run that has the metric, by its position."""
    return {
        number: summary.mean
        for number, run in enumerate(comparison.runs)
        if (summary := summarise(run, stage, column.metric)) is not None
    }


def legend(intervals: ComparisonIntervals | None) -> str:
    """How the numbers in the tables are to be read."""
    mean = "Mean ± sample standard deviation over seeds"
    if intervals is None:
        return f"{mean}; {ARROWS}"
    settings = intervals.resampling
    level = f"{100 * settings.level:g} %"
    return (
        f"{mean} [{level} interval of the mean]; {ARROWS} Intervals are of a paired bootstrap with "
        f"{settings.num_resamples:,} resamples: the same test samples are drawn for all runs, and "
        "where there are several seeds, Student's t adds their spread. The best mean is bold where "
        f"the {level} interval of its difference from each other run excludes 0."
    )


def _objectives(comparison: Comparison) -> str:
    rows = []
    for run in comparison.runs:
        cells = objective_cells(run.objectives[min(run.objectives)])
        rows.append([_name(run.name), *(cell.replace("|", r"\|") for cell in cells)])
    return _table(["run", *HEADER], rows)


def _cells(
    comparison: Comparison, stage: str, column: Column, intervals: ComparisonIntervals | None
) -> list[Cell]:
    """One metric of every run."""
    best = None if intervals is None else best_run(comparison, stage, column, intervals)
    cells = []
    for number, run in enumerate(comparison.runs):
        summary = summarise(run, stage, column.metric)
        interval = None
        if summary is not None and intervals is not None:
            interval = intervals.interval(number, stage, column.metric)
        cells.append(_cell(summary, interval, column, is_best=number == best))
    return cells


def _cell(
    summary: Summary | None,
    interval: tuple[float, float] | None,
    column: Column,
    *,
    is_best: bool,
) -> Cell:
    return Cell(
        mean=column.shown(None if summary is None else summary.mean),
        std="" if summary is None or summary.std is None else column.shown(summary.std),
        interval=None
        if interval is None
        else (column.shown(interval[0]), column.shown(interval[1])),
        is_best=is_best,
    )


def _markdown(cell: Cell) -> str:
    """The mean, in bold where it is the best, with the deviation and the interval."""
    mean = f"**{cell.mean}**" if cell.is_best else cell.mean
    deviation = f" ± {cell.std}" if cell.std else ""
    interval = f" [{', '.join(cell.interval)}]" if cell.interval else ""
    return mean + deviation + interval


def _name(name: str) -> str:
    return name.replace("|", r"\|")


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
