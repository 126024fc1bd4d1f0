"""Markdown tables of the metrics of a run: mean and standard deviation over its seeds."""

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES
from trainer.evaluation.record import STAGES, MetricValues
from trainer.metrics.ood import OOD_SCORES
from trainer.reports.columns import COLUMNS, NO_VALUE, STAGE_TITLES, TEMPERATURE, Column
from trainer.runs.evaluate import Record

OOD_COLUMNS = (
    Column("auroc", "AUROC", "higher", 100),
    Column("aupr_ood", "AUPR, OOD positive", "higher", 100),
    Column("aupr_id", "AUPR, ID positive", "higher", 100),
    Column("fpr_at_95_tpr", "FPR at 95 % TPR", "lower", 100),
)

CORRUPTION_CELLS = (
    ("accuracy", "raw"),
    ("nll", "raw"),
    ("adaptive_ece", "raw"),
    ("adaptive_ece", "temperature_nll"),
)


def metrics_table(records: Sequence[Record], *, show_intervals: bool = False) -> str:
    """One row per metric and one column per stage.

    Args:
        records: The record of each seed.
        show_intervals: Whether a cell ends in the ends of its bootstrap interval, each averaged
            over the seeds.
    """
    stages = [stage for stage in STAGES if all(stage in record for record in records)]
    columns = [TEMPERATURE, *COLUMNS.values()]
    rows = []
    for column in columns:
        cells = [
            _cell([record[stage] for record in records], column, show_intervals=show_intervals)
            for stage in stages
        ]
        if any(cell != NO_VALUE for cell in cells):
            rows.append([column.header, *cells])
    return _table(["metric", *(STAGE_TITLES[stage] for stage in stages)], rows)


def ood_table(records: Sequence[Mapping[str, Any]], *, show_intervals: bool = False) -> str:
    """One row per dataset, stage and score; arguments as in `metrics_table`.

    The order of the largest logits is the same at every temperature, so that they have one row.
    """
    rows = []
    for location, evaluated in records[0].items():
        for stage in STAGES:
            if stage != "raw" and stage not in evaluated:
                continue
            each = [record[location] for record in records]
            at_stage = each if stage == "raw" else [record[stage] for record in each]
            for score in OOD_SCORES:
                if stage != "raw" and score == "max_logit":
                    continue
                values = [item[score] for item in at_stage]
                cells = (_cell(values, c, show_intervals=show_intervals) for c in OOD_COLUMNS)
                rows.append([location.replace("|", r"\|"), score, STAGE_TITLES[stage], *cells])
    return _table(["against", "by", "logits", *(column.header for column in OOD_COLUMNS)], rows)


def corruptions_table(records: Sequence[Mapping[str, Mapping[str, Record]]]) -> str:
    """One row per severity, over all corruptions; one per corruption, over all severities."""
    groups = [
        (f"severity {severity}", [(name, str(severity)) for name in CORRUPTIONS])
        for severity in SEVERITIES
    ]
    groups += [
        (name.replace("_", " "), [(name, str(severity)) for severity in SEVERITIES])
        for name in CORRUPTIONS
    ]
    rows = []
    for title, keys in groups:
        cells = []
        for metric, stage in CORRUPTION_CELLS:
            means = [_mean_over(record, keys, metric, stage) for record in records]
            cells.append(_spread(means, COLUMNS[metric]))
        rows.append([title, *cells])
    titles = [
        COLUMNS[metric].header + (", scaled" if stage != "raw" else "")
        for metric, stage in CORRUPTION_CELLS
    ]
    return _table(["corrupted by", *titles], rows)


def _mean_over(
    record: Mapping[str, Mapping[str, Record]],
    keys: Sequence[tuple[str, str]],
    metric: str,
    stage: str,
) -> MetricValues:
    values = [record[name][severity].get(stage, {}).get(metric) for name, severity in keys]
    defined = [value for value in values if value is not None]
    return {metric: statistics.fmean(defined) if defined else None}


def _cell(
    seeds: Sequence[Mapping[str, float | None]], column: Column, *, show_intervals: bool
) -> str:
    return _spread(seeds, column) + (_interval(seeds, column) if show_intervals else "")


def _spread(seeds: Sequence[Mapping[str, float | None]], column: Column) -> str:
    """Mean and standard deviation of a metric over the seeds, formatted for its column."""
    values = [value for each in seeds if (value := each.get(column.metric)) is not None]
    if not values:
        return NO_VALUE
    mean = column.shown(statistics.fmean(values))
    return f"{mean} ± {column.shown(statistics.stdev(values))}" if len(values) > 1 else mean


def _interval(seeds: Sequence[Mapping[str, float | None]], column: Column) -> str:
    """The ends of a metric's interval, each averaged over the seeds; "" where there are none."""
    ends = []
    for end in ("low", "high"):
        values = [each.get(f"{column.metric}_{end}") for each in seeds]
        defined = [value for value in values if value is not None]
        if not defined:
            return ""
        ends.append(column.shown(statistics.fmean(defined)))
    return f" [{', '.join(ends)}]"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
