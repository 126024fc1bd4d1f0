"""The columns of tables of metrics: title, unit, decimals and the better direction.

Columns of OOD data and corrupted images are made from the names of their metrics. The best run is
that of one column.
"""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from difficulty_service.base.errors import Setting, TrainingError
from trainer.metrics.selective import CERTAINTIES
from trainer.reports.comparison import (
    TWO_SEEDS,
    ComparisonIntervals,
    RunComparison,
    summarise,
)
from trainer.reports.other_data import CORRUPTED_METRICS, OF, OOD_METRICS, SCORE_TITLES

PERCENT, PER_MILLE = 100, 1000
NO_VALUE = "\N{EN DASH}"
UNITS = {1: "", PERCENT: " (%)", PER_MILLE: " (x 1000)"}
COLUMN_ARROWS = {"higher": " ↑", "lower": " ↓", "neither": ""}


@dataclass(frozen=True)
class TableColumn:
    """One metric in a table; `scale`, a key of UNITS, leads from the value to the one shown."""

    metric: str
    title: str
    better: Literal["higher", "lower", "neither"]
    scale: int = 1
    decimals: int = 2

    @property
    def header(self) -> str:
        """Title, unit and an arrow in the better direction."""
        return self.title + UNITS[self.scale] + COLUMN_ARROWS[self.better]

    def shown(self, value: float | None) -> str:
        """The value in the unit of the header; a dash where there is none."""
        return NO_VALUE if value is None else f"{self.scale * value:.{self.decimals}f}"

    def signed(self, difference: float) -> str:
        """A difference of two values in the unit of the header, with its sign."""
        return f"{self.scale * difference:+.{self.decimals}f}"

    def is_best(self, value: float | None, others: list[float]) -> bool:
        """Whether no other value is better, at the number of decimals shown."""
        if value is None or self.better == "neither" or len(others) < 2:  # noqa: PLR2004
            return False
        best = max(others) if self.better == "higher" else min(others)
        return self.shown(value) == self.shown(best)


def _by_certainty(by: str, name: str) -> tuple[TableColumn, ...]:
    """Misclassification detection and selective prediction by one of CERTAINTIES."""
    detection = f"misclassification_{{}}_{by}"
    return (
        TableColumn(detection.format("auroc"), f"AUROC, {name}", "higher", PERCENT),
        TableColumn(
            detection.format("aupr_success"), f"AUPR of successes, {name}", "higher", PERCENT
        ),
        TableColumn(detection.format("aupr_error"), f"AUPR of errors, {name}", "higher", PERCENT),
        TableColumn(
            detection.format("fpr_at_95_tpr"), f"FPR at 95 % TPR, {name}", "lower", PERCENT
        ),
        TableColumn(
            detection.format("fpr_at_95_tpr_crl"),
            f"FPR at 95 % TPR as in CRL, {name}",
            "lower",
            PERCENT,
        ),
        TableColumn(f"aurc_{by}", f"AURC, {name}", "lower", PER_MILLE),
        TableColumn(f"e_aurc_{by}", f"E-AURC, {name}", "lower", PER_MILLE),
        TableColumn(f"augrc_{by}", f"AUGRC, {name}", "lower", PER_MILLE),
        *(
            TableColumn(
                f"accuracy_rejecting_{share}_percent_{by}",
                f"accuracy, {share} % rejected, {name}",
                "higher",
                PERCENT,
            )
            for share in (10, 20, 50)
        ),
    )


TEMPERATURE = TableColumn("temperature", "temperature", "neither")

COLUMNS = {
    column.metric: column
    for column in (
        TableColumn("accuracy", "accuracy", "higher", PERCENT),
        TableColumn("top_5_accuracy", "top-5 accuracy", "higher", PERCENT),
        TableColumn("nll", "NLL", "lower", decimals=4),
        TableColumn("brier_score", "Brier score", "lower", decimals=4),
        TableColumn("ece", "ECE", "lower", PERCENT),
        TableColumn("adaptive_ece", "adaptive ECE", "lower", PERCENT),
        TableColumn("smooth_ece", "smooth ECE", "lower", PERCENT),
        TableColumn("classwise_ece", "class-wise ECE", "lower", PERCENT, decimals=3),
        TableColumn("l2_ece", "L2-ECE", "lower", PERCENT),
        TableColumn("mce", "MCE", "lower", PERCENT),
        *(column for by in CERTAINTIES for column in _by_certainty(by, {"msp": "MSP"}.get(by, by))),
        TableColumn("s99_share", "share with confidence ≥ 0.99", "neither", PERCENT),
        TableColumn("s99_accuracy", "accuracy of that share", "higher", PERCENT),
    )
}
"""Columns by the name of their metric, in the order of a table."""

OOD_COLUMNS = (
    TableColumn("auroc", "AUROC", "higher", PERCENT),
    TableColumn("aupr_ood", "AUPR, OOD positive", "higher", PERCENT),
    TableColumn("aupr_id", "AUPR, ID positive", "higher", PERCENT),
    TableColumn("fpr_at_95_tpr", "FPR at 95 % TPR, OOD positive", "lower", PERCENT),
    TableColumn("fpr_at_95_tpr_id", "FPR at 95 % TPR, ID positive", "lower", PERCENT),
)
"""Columns of the detection of OOD samples by one score."""

MAIN_COLUMNS = (
    "accuracy",
    "nll",
    "brier_score",
    "ece",
    "adaptive_ece",
    "classwise_ece",
    "misclassification_auroc_msp",
    "aurc_msp",
)
"""Metrics that a comparison shows by default."""


def column_of(metric: str) -> TableColumn:
    """The column of any metric of a run, also of OOD data and of corrupted images."""
    if metric in CORRUPTED_METRICS:
        name, severity = CORRUPTED_METRICS[metric]
        where = "corrupted" if severity is None else f"severity {severity}"
        return replace(COLUMNS[name], metric=metric, title=f"{COLUMNS[name].title}, {where}")
    detection, _, data = metric.partition(OF)
    if detection in OOD_METRICS:
        rate, by = OOD_METRICS[detection]
        column = next(each for each in OOD_COLUMNS if each.metric == rate)
        return replace(column, metric=metric, title=f"{column.title}, {SCORE_TITLES[by]}, {data}")
    return COLUMNS[metric]


def choose_metrics(comparison: RunComparison, names: Sequence[str]) -> tuple[str, ...]:
    """The metrics of a comparison that are named, in that order.

    The name of a metric of OOD detection without that of the data stands for all OOD data.

    Raises:
        TrainingError: A name is unknown or given twice, or no run has the metric.
    """
    chosen: list[str] = []
    known = (*COLUMNS, *OOD_METRICS, *CORRUPTED_METRICS)
    for name in names:
        detection, at, _ = name.partition(OF)
        if (detection if detection in OOD_METRICS else name) not in known:
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:5]
            raise TrainingError(
                f"metric {name!r} is unknown",
                f"choose for example {', '.join(close)}",
                parameter="metrics",
            )
        expands = detection in OOD_METRICS and not at
        found = [f"{name}{OF}{data}" for data in comparison.ood_names] if expands else [name]
        found = [metric for metric in found if comparison.has(metric)]
        if not found:
            raise _absent(name)
        chosen += found
    if repeated := next((name for name in chosen if chosen.count(name) > 1), None):
        raise TrainingError(f"{repeated} is chosen twice", "name it once", parameter="metrics")
    return tuple(chosen)


def _absent(name: str) -> TrainingError:
    """The error about a metric that no run has."""
    remedy: tuple[str | Setting, ...] = ("leave it out",)
    if name.partition(OF)[0] in OOD_METRICS:
        remedy = ("evaluate the runs with ", Setting("ood"), " first")
        if name.partition(OF)[0].endswith("mahalanobis"):
            remedy = (*remedy[:2], " and ", Setting("mahalanobis", value=True), " first")
    elif name in CORRUPTED_METRICS:
        remedy = ("evaluate the runs with ", Setting("corruptions", value=True), " first")
    return TrainingError(f"no run has {name}", *remedy, parameter="metrics")


def best_run(
    comparison: RunComparison, stage: str, column: TableColumn, intervals: ComparisonIntervals
) -> int | None:
    """Position of the run that is better than every other, beyond the intervals; None for none.

    A run of two seeds is never the best: its own spread is hardly known, pooled or not.
    """
    best = leading_run(comparison, stage, column)
    if best is None:
        return None
    summary = summarise(comparison.runs[best], stage, column.metric)
    if summary is None or summary.num_seeds == TWO_SEEDS:
        return None
    sign = 1 if column.better == "higher" else -1
    for other in _means(comparison, stage, column).keys() - {best}:
        interval = intervals.difference(best, other, stage, column.metric)
        if interval is None or min(sign * end for end in interval) <= 0:
            return None
    return best


def leading_run(comparison: RunComparison, stage: str, column: TableColumn) -> int | None:
    """Position of the run with the best mean; None where fewer than two runs have one."""
    means = _means(comparison, stage, column)
    if len(means) < 2 or column.better == "neither":  # noqa: PLR2004
        return None
    sign = 1 if column.better == "higher" else -1
    return max(means, key=lambda number: sign * means[number])


def _means(comparison: RunComparison, stage: str, column: TableColumn) -> dict[int, float]:
    """Mean over the seeds of each run that has the metric, by its position."""
    return {
        number: summary.mean
        for number, run in enumerate(comparison.runs)
        if (summary := summarise(run, stage, column.metric)) is not None
    }
