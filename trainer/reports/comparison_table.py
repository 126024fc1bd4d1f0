"""The tables of a comparison: what runs minimised, and their metrics with intervals.

The columns of tables of metrics: title, unit, decimals and the better direction.

What runs minimised, in the cells of a table.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from trainer.metrics.selective import CERTAINTIES
from trainer.reports.comparison import Comparison, ComparisonIntervals, summarise
from trainer.runs.outcome import shown

PERCENT, PER_MILLE = 100, 1000
NO_VALUE = "\N{EN DASH}"
UNITS = {1: "", PERCENT: " (%)", PER_MILLE: " (x 1000)"}
STAGE_TITLES = {
    "raw": "as trained",
    "temperature_nll": "temperature by NLL",
    "temperature_ece": "temperature by ECE",
    "temperature_adaptive_ece": "temperature by adaptive ECE",
}
COLUMN_ARROWS = {"higher": " ↑", "lower": " ↓", "neither": ""}


@dataclass(frozen=True)
class Column:
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


def _by_certainty(by: str, name: str) -> tuple[Column, ...]:
    """Misclassification detection and selective prediction by one of CERTAINTIES."""
    detection = f"misclassification_{{}}_{by}"
    return (
        Column(detection.format("auroc"), f"AUROC, {name}", "higher", PERCENT),
        Column(detection.format("aupr_success"), f"AUPR of successes, {name}", "higher", PERCENT),
        Column(detection.format("aupr_error"), f"AUPR of errors, {name}", "higher", PERCENT),
        Column(detection.format("fpr_at_95_tpr"), f"FPR at 95 % TPR, {name}", "lower", PERCENT),
        Column(
            detection.format("fpr_at_95_tpr_crl"),
            f"FPR at 95 % TPR as in CRL, {name}",
            "lower",
            PERCENT,
        ),
        Column(f"aurc_{by}", f"AURC, {name}", "lower", PER_MILLE),
        Column(f"e_aurc_{by}", f"E-AURC, {name}", "lower", PER_MILLE),
        Column(f"augrc_{by}", f"AUGRC, {name}", "lower", PER_MILLE),
        *(
            Column(
                f"accuracy_rejecting_{share}_percent_{by}",
                f"accuracy, {share} % rejected, {name}",
                "higher",
                PERCENT,
            )
            for share in (10, 20, 50)
        ),
    )


TEMPERATURE = Column("temperature", "temperature", "neither")

COLUMNS = {
    column.metric: column
    for column in (
        Column("accuracy", "accuracy", "higher", PERCENT),
        Column("top_5_accuracy", "top-5 accuracy", "higher", PERCENT),
        Column("nll", "NLL", "lower", decimals=4),
        Column("brier_score", "Brier score", "lower", decimals=4),
        Column("ece", "ECE", "lower", PERCENT),
        Column("adaptive_ece", "adaptive ECE", "lower", PERCENT),
        Column("classwise_ece", "class-wise ECE", "lower", PERCENT, decimals=3),
        Column("l2_ece", "L2-ECE", "lower", PERCENT),
        Column("mce", "MCE", "lower", PERCENT),
        *(column for by in CERTAINTIES for column in _by_certainty(by, {"msp": "MSP"}.get(by, by))),
        Column("s99_share", "share with confidence ≥ 0.99", "neither", PERCENT),
        Column("s99_accuracy", "accuracy of that share", "higher", PERCENT),
    )
}
"""Columns by the name of their metric, in the order of a table."""

OOD_COLUMNS = (
    Column("auroc", "AUROC", "higher", PERCENT),
    Column("aupr_ood", "AUPR, OOD positive", "higher", PERCENT),
    Column("aupr_id", "AUPR, ID positive", "higher", PERCENT),
    Column("fpr_at_95_tpr", "FPR at 95 % TPR", "lower", PERCENT),
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

ARROWS = "↑ higher is better, ↓ lower is better."


@dataclass(frozen=True)
class Cell:
    """One metric of one run: mean and sample deviation over the seeds, and the ends of an interval.

    The mean is the best if it is better than that of every other run, beyond the intervals.
    """

    mean: str
    std: str
    interval: tuple[str, str] | None
    is_best: bool


@dataclass(frozen=True)
class StageTable:
    """The metrics of one stage."""

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
    """
    parts = [f"{legend(intervals)}\n", f"### What the runs minimise\n\n{_objectives(comparison)}"]
    for stage in comparison.stages:
        table = stage_table(comparison, stage, metrics, intervals)
        rows = [
            [_name(run.name), run.seeds, *map(_markdown, cells)]
            for run, cells in zip(comparison.runs, table.rows, strict=True)
        ]
        header = ["run", "seeds", *(column.header for column in table.columns)]
        parts.append(f"### {table.heading}\n\n{markdown_rows(header, rows)}")
    return "\n".join(parts)


def stage_table(
    comparison: Comparison,
    stage: str,
    metrics: Sequence[str],
    intervals: ComparisonIntervals | None,
) -> StageTable:
    """The metrics of every run at one stage, after temperature scaling with the temperature."""
    columns = [COLUMNS[metric] for metric in metrics]
    if stage != "raw":
        columns.append(TEMPERATURE)
    by_column = [_cells(comparison, stage, column, intervals) for column in columns]
    return StageTable(HEADINGS[stage], columns, list(zip(*by_column, strict=True)))


def best_run(
    comparison: Comparison, stage: str, column: Column, intervals: ComparisonIntervals
) -> int | None:
    """Position of the run that is better than every other, beyond the intervals; None for none."""
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
    """Position of the run with the best mean; None where fewer than two runs have one."""
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
    return markdown_rows(["run", *HEADER], rows)


def _cells(
    comparison: Comparison, stage: str, column: Column, intervals: ComparisonIntervals | None
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
        cells.append(
            Cell(
                mean=column.shown(summary.mean),
                std="" if summary.std is None else column.shown(summary.std),
                interval=None if ends is None else (column.shown(ends[0]), column.shown(ends[1])),
                is_best=number == best,
            )
        )
    return cells


def _markdown(cell: Cell) -> str:
    """The mean, in bold where it is the best, with the deviation and the interval."""
    mean = f"**{cell.mean}**" if cell.is_best else cell.mean
    deviation = f" ± {cell.std}" if cell.std else ""
    interval = f" [{', '.join(cell.interval)}]" if cell.interval else ""
    return mean + deviation + interval


def _name(name: str) -> str:
    return name.replace("|", r"\|")


def markdown_rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
