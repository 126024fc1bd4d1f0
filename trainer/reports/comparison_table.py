"""The tables of a comparison: what runs minimised, and their metrics with intervals."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.reports.columns import (
    MAIN_COLUMNS,
    NO_VALUE,
    TEMPERATURE,
    TableColumn,
    best_run,
    column_of,
)
from trainer.reports.comparison import (
    SEEDS_ALONE,
    TOO_FEW,
    TWO_SEEDS,
    ComparisonIntervals,
    RunComparison,
    error_over_seeds,
    has_seeds_alone,
    summarise,
)
from trainer.reports.pair_tables import Pair, other_tables
from trainer.runs.outcome import shown

STAGE_TITLES = {
    "raw": "as trained",
    "temperature_nll": "temperature by NLL",
    "temperature_ece": "temperature by ECE",
    "temperature_adaptive_ece": "temperature by adaptive ECE",
}
HEADER = ("loss", "entropy term", "weights of the samples")


def objective_cells(objective: Mapping[str, Any]) -> list[str]:
    """The cells under HEADER."""
    loss, weights = objective["loss"], objective["weights"]
    constants = ", ".join(f"{key} = {shown(value)}" for key, value in loss["constants"].items())
    name = f"{loss['name']} ({constants})" if constants else loss["name"]
    if labels := objective.get("labels"):
        name += (
            ", by the posterior of labels"
            if labels["targets"] == "posterior"
            else ", times the probability of the label"
        )
    if weights == "none":
        return [name, "none", NO_VALUE]
    term = f"{objective['alpha']:g} x entropy"
    if weights == "constant":
        return [name, term, "all 1"]
    return [name, f"{objective['alpha']:g} x weight x entropy", _weights(objective)]


def _weights(objective: Mapping[str, Any]) -> str:
    """Where the weights come from and how they are distributed."""
    scores, formula, spread = (objective[key] for key in ("scores", "formula", "distribution"))
    return (
        f"by `{scores['column']}` of {scores['file']}; "
        f"{formula['normalise']}, T = {formula['score_temperature']:g}; "
        f"mean {spread['mean']:.2f} ± {spread['std']:.2f}, "
        f"{spread['min']:.2f} to {spread['max']:.2f}"
    )


HEADINGS = {
    "raw": "As trained",
    "temperature_nll": "After temperature scaling by NLL",
    "temperature_ece": "After temperature scaling by ECE",
    "temperature_adaptive_ece": "After temperature scaling by adaptive ECE",
}

LEFT_COLUMN, RUN_COLUMN = 20, 30
"""Characters of a terminal for the names of the metrics, and for the numbers of a run."""

ARROWS = "↑ higher is better, ↓ lower is better."


@dataclass(frozen=True)
class Cell:
    """One metric of one run: mean and sample deviation over the seeds, and the ends of an interval.

    Two seeds have their values in place of deviation and interval. The mean is the best if it is
    better than that of every other run, beyond the intervals.
    """

    mean: str
    std: str
    interval: tuple[str, str] | None
    is_best: bool
    range: tuple[str, str] | None = None


@dataclass(frozen=True)
class StageTable:
    """The metrics of one stage."""

    heading: str
    columns: Sequence[TableColumn]
    rows: Sequence[Sequence[Cell]]


def markdown_table(
    comparison: RunComparison,
    metrics: Sequence[str] = MAIN_COLUMNS,
    intervals: ComparisonIntervals | None = None,
    width: int | None = None,
) -> str:
    """Formats one Markdown table of what the runs minimised, and one of metrics per stage.

    The best mean is bold only where the interval of its difference from every other run excludes
    0; without intervals nothing is bold. Tables wider than `width` characters have the runs side by
    side instead, a few in each.
    """
    parts = [f"{text}\n" for text in (legend(intervals), *advice(comparison))]
    parts.append(f"### What the runs minimise\n\n{_objectives(comparison)}")
    for stage in comparison.stages:
        table = stage_table(comparison, stage, metrics, intervals)
        rows = [
            [_name(run.name), run.seeds, *map(_markdown, cells)]
            for run, cells in zip(comparison.runs, table.rows, strict=True)
        ]
        header = ["run", "seeds", *(_name(column.header) for column in table.columns)]
        parts.append(f"### {table.heading}\n\n{_within(width, header, rows)}")
    for pairs in other_tables(comparison, intervals) if metrics == MAIN_COLUMNS else ():
        rows = [[_name(name), *map(_markdown_pair, cells)] for name, cells in pairs.rows]
        header = ["run", *(column.header for column in pairs.columns)]
        table_text = _within(width, header, rows)
        parts.append(f"### {_name(pairs.heading)}\n\n{pairs.note}\n\n{table_text}")
    return "\n".join(parts)


def advice(comparison: RunComparison) -> Sequence[str]:
    """What to do where runs have two seeds, which is too few; otherwise nothing."""
    names = [run.name for run in comparison.runs if len(run.records) == TWO_SEEDS]
    if not names:
        return ()
    return (
        f"Two seeds are too few for an interval, so both values are shown of {', '.join(names)}, "
        "and no run of two seeds is the best. Train three seeds or more, such as "
        "`--set training.seeds=[0,1,2,3,4]`.",
    )


def lacks_seeds(comparison: RunComparison) -> bool:
    """Whether a pair of runs has too few seeds for an interval of their difference."""
    seeds = [dict.fromkeys(run.records, 0.0) for run in comparison.runs]
    return any(
        error_over_seeds(first, second)[1] == TOO_FEW
        for number, first in enumerate(seeds)
        for second in seeds[:number]
    )


def stage_table(
    comparison: RunComparison,
    stage: str,
    metrics: Sequence[str],
    intervals: ComparisonIntervals | None,
) -> StageTable:
    """The metrics of every run at one stage, after temperature scaling with the temperature."""
    columns = [column_of(metric) for metric in metrics]
    if stage != "raw":
        columns.append(TEMPERATURE)
    by_column = [_cells(comparison, stage, column, intervals) for column in columns]
    return StageTable(HEADINGS[stage], columns, list(zip(*by_column, strict=True)))


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
        "where there are three seeds or more, Student's t adds their spread. The best mean is bold "
        f"where the {level} interval of its difference from each other run excludes 0."
        + "".join(f" {text}" for text in seeds_alone(intervals))
    )


def seeds_alone(intervals: ComparisonIntervals) -> Sequence[str]:
    """A sentence where some of the intervals are of the seeds alone; otherwise nothing."""
    return [SEEDS_ALONE] if any(has_seeds_alone(name) for _, name in intervals.metrics) else []


def _objectives(comparison: RunComparison) -> str:
    rows = []
    for run in comparison.runs:
        cells = objective_cells(run.objectives[min(run.objectives)])
        rows.append([_name(run.name), *(cell.replace("|", r"\|") for cell in cells)])
    return markdown_rows(["run", *HEADER], rows)


def _cells(
    comparison: RunComparison,
    stage: str,
    column: TableColumn,
    intervals: ComparisonIntervals | None,
) -> list[Cell]:
    """One metric of every run."""
    best = None if intervals is None else best_run(comparison, stage, column, intervals)
    cells = []
    for number, run in enumerate(comparison.runs):
        summary = summarise(run, stage, column.metric)
        if summary is None:
            cells.append(Cell(NO_VALUE, "", None, is_best=False))
            continue
        ends = intervals.interval(number, stage, column.metric) if intervals else None
        is_range = summary.num_seeds == TWO_SEEDS
        values = column.shown(summary.lowest), column.shown(summary.highest)
        cells.append(
            Cell(
                mean=column.shown(summary.mean),
                std="" if summary.std is None or is_range else column.shown(summary.std),
                interval=None if ends is None else (column.shown(ends[0]), column.shown(ends[1])),
                is_best=number == best,
                range=values if is_range else None,
            )
        )
    return cells


def _markdown(cell: Cell) -> str:
    """The mean, in bold where it is the best, with the deviation and the interval."""
    mean = f"**{cell.mean}**" if cell.is_best else cell.mean
    deviation = f" ± {cell.std}" if cell.std else ""
    interval = f" [{', '.join(cell.interval)}]" if cell.interval else ""
    values = f" ({' and '.join(cell.range)})" if cell.range else ""
    return mean + deviation + interval + values


def _markdown_pair(pair: Pair) -> str:
    """The value as trained, in bold where it is the best, and what follows it."""
    return (f"**{pair.raw}**" if pair.is_best else pair.raw) + pair.rest_with_intervals


def _name(name: str) -> str:
    return name.replace("|", r"\|")


def _within(width: int | None, header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table, or several with the runs side by side where it is wider than `width`."""
    widths = [max(map(len, cells)) + len(" | ") for cells in zip(header, *rows, strict=True)]
    if width is None or sum(widths) < width:
        return markdown_rows(header, rows)
    across = max(1, (width - LEFT_COLUMN) // RUN_COLUMN)
    tables = []
    for start in range(0, len(rows), across):
        left, *lines = zip(header, *rows[start : start + across], strict=True)
        tables.append(markdown_rows(left, lines))
    return "\n".join(tables)


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
