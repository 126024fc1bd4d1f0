"""Tables of pairs: "raw / scaled (T)" in one cell, as papers print them.

T is the temperature of least ECE of the validation samples, as in Mukhoti et al. (2020).
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from difficulty_service.images.corruptions import SEVERITIES
from trainer.reports.columns import (
    MAIN_COLUMNS,
    NO_VALUE,
    TEMPERATURE,
    TableColumn,
    best_run,
    column_of,
)
from trainer.reports.comparison import (
    TWO_SEEDS,
    ComparedRun,
    ComparisonIntervals,
    RunComparison,
    Summary,
    summarise,
)
from trainer.reports.other_data import (
    ALL_OOD_SCORES,
    CORRUPTED_METRICS,
    OF,
    OOD_METRICS,
    SCORE_TITLES,
    UNSCALED,
)

SCALED = "temperature_ece"
"""The stage of the scaled number of a pair."""

UNSCALED_METRICS = {
    "accuracy",
    "top_5_accuracy",
    *(metric for metric, (_, by) in OOD_METRICS.items() if by in UNSCALED),
    *(metric for metric, (name, _) in CORRUPTED_METRICS.items() if name == "accuracy"),
}
"""Metrics that no temperature changes, without names of data."""


@dataclass(frozen=True)
class Pair:
    """One metric of one run as trained and, where a temperature changes it, scaled.

    The ends of the intervals are as they are shown. The run may be the best as trained.
    """

    raw: str
    scaled: str = ""
    temperature: str = ""
    is_best: bool = False
    raw_interval: tuple[str, str] | None = None
    scaled_interval: tuple[str, str] | None = None

    @property
    def rest_with_intervals(self) -> str:
        """`rest`, with the interval of the value as trained before it and that of the scaled."""
        raw, scaled = (
            f" [{', '.join(ends)}]" if ends else ""
            for ends in (self.raw_interval, self.scaled_interval)
        )
        return f"{raw} / {self.scaled}{scaled} ({self.temperature})" if self.scaled else raw


@dataclass(frozen=True)
class PairTable:
    """Pairs of every run, with a sentence about them; rows are names of runs and their cells."""

    heading: str
    note: str
    columns: Sequence[TableColumn]
    rows: Sequence[tuple[str, Sequence[Pair]]]


NO_DISTANCES = (
    "Mahalanobis distances are left out, because no run has them: "
    "`difficulty evaluate RUN --ood DATA --mahalanobis` measures them."
)
PAIR_NOTE = "Each cell: as trained / at the temperature of least ECE of validation samples (T)."


def pair_table(
    comparison: RunComparison,
    columns: Sequence[TableColumn],
    heading: str,
    note: str,
    intervals: ComparisonIntervals | None = None,
) -> PairTable:
    """The metrics of every run as pairs."""
    best = {
        column.metric: best_run(comparison, "raw", column, intervals) if intervals else None
        for column in columns
    }
    rows = [
        (
            run.name,
            [
                _with_intervals(
                    _pair(run, column, is_best=best[column.metric] == number),
                    number,
                    column,
                    intervals,
                )
                for column in columns
            ],
        )
        for number, run in enumerate(comparison.runs)
    ]
    return PairTable(heading, note, columns, rows)


def other_tables(
    comparison: RunComparison, intervals: ComparisonIntervals | None = None
) -> Sequence[PairTable]:
    """The tables of OOD data and of corrupted images that some of the runs were evaluated on."""
    tables = []
    for data in comparison.ood_names:
        metrics = {by: f"ood_auroc_{by}{OF}{data}" for by in ALL_OOD_SCORES}
        columns = [
            replace(column_of(metric), title=f"AUROC, {SCORE_TITLES[by]}")
            for by, metric in metrics.items()
            if comparison.has(metric)
        ]
        note = PAIR_NOTE + _missing(comparison, metrics["msp"], "was not evaluated on these data")
        if not comparison.has(metrics["mahalanobis"]):
            note += f" {NO_DISTANCES}"
        heading = f"Out of distribution: {data}"
        tables.append(pair_table(comparison, columns, heading, note, intervals))
    if comparison.has("corrupted_accuracy"):
        names = ["corrupted_accuracy", "corrupted_nll", "corrupted_ece"]
        names += [f"corrupted_ece_severity_{severity}" for severity in SEVERITIES]
        note = f"Means over all corruptions. {PAIR_NOTE}" + _missing(
            comparison, "corrupted_accuracy", "was not evaluated with `--corruptions`"
        )
        columns = [column_of(name) for name in names]
        tables.append(pair_table(comparison, columns, "Corrupted test images", note, intervals))
    return tables


def tabulated_metrics(comparison: RunComparison, metrics: Sequence[str]) -> tuple[str, ...]:
    """Every metric in the tables: with the default ones also those of `other_tables`."""
    if tuple(metrics) != MAIN_COLUMNS:
        return tuple(metrics)
    others = (column.metric for table in other_tables(comparison) for column in table.columns)
    return (*metrics, *others)


def _missing(comparison: RunComparison, metric: str, what: str) -> str:
    """A sentence that names the runs without a metric; empty where all have it."""
    names = [run.name for run in comparison.runs if summarise(run, "raw", metric) is None]
    return f" {', '.join(names)} {what}." if names else ""


def _pair(run: ComparedRun, column: TableColumn, *, is_best: bool) -> Pair:
    raw = summarise(run, "raw", column.metric)
    if raw is None:
        return Pair(NO_VALUE)
    shown_raw = short(raw, column)
    scaled = summarise(run, SCALED, column.metric)
    temperature = summarise(run, SCALED, "temperature")
    is_same = column.metric.partition(OF)[0] in UNSCALED_METRICS
    if scaled is None or temperature is None or is_same:
        return Pair(shown_raw, is_best=is_best)
    return Pair(
        shown_raw, short(scaled, column), TEMPERATURE.shown(temperature.mean), is_best=is_best
    )


def _with_intervals(
    pair: Pair, number: int, column: TableColumn, intervals: ComparisonIntervals | None
) -> Pair:
    """A pair with the intervals of the run at a position."""
    if intervals is None:
        return pair
    raw, scaled = (
        None if ends is None else (column.shown(ends[0]), column.shown(ends[1]))
        for ends in (intervals.interval(number, stage, column.metric) for stage in ("raw", SCALED))
    )
    return replace(pair, raw_interval=raw, scaled_interval=scaled)


def short(summary: Summary, column: TableColumn) -> str:
    """Mean and deviation over the seeds; of two seeds, both values."""
    if summary.num_seeds == TWO_SEEDS:
        return f"{column.shown(summary.lowest)}\N{EN DASH}{column.shown(summary.highest)}"
    mean = column.shown(summary.mean)
    return mean if summary.std is None else f"{mean} ± {column.shown(summary.std)}"
