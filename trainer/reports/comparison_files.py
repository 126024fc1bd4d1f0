"""The files of a comparison: tables and a page for people, tables for programs, and diagrams.

The page is for any browser, of the same kind as the report of scores. Its table of differences has
every run beside the best one of each metric.
"""

import base64
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from difficulty_service.base.errors import TrainingError
from difficulty_service.base.files import replacing, require_output_file
from difficulty_service.pages.html_page import render_template
from trainer import run_folder
from trainer.reports.columns import (
    MAIN_COLUMNS,
    NO_VALUE,
    TableColumn,
    best_run,
    column_of,
    leading_run,
)
from trainer.reports.comparison import (
    ComparedRun,
    ComparisonIntervals,
    RunComparison,
    seed_predictions,
    summarise,
)
from trainer.reports.comparison_curves import (
    COVERAGE,
    FALSE_POSITIVES,
    REJECTION,
    Axis,
    CurvesOfRuns,
    Panel,
    draw_panels,
    has_distances,
)
from trainer.reports.comparison_table import (
    HEADER,
    STAGE_TITLES,
    advice,
    lacks_seeds,
    legend,
    markdown_table,
    objective_cells,
    stage_table,
)
from trainer.reports.diagrams import (
    FORMATS,
    SeedPredictions,
    WeightsOfRun,
    draw_reliability,
    draw_weights,
)
from trainer.reports.latex import latex_tables
from trainer.reports.pair_tables import NO_DISTANCES, other_tables

CONTAINS_ZERO = "interval contains 0"


@dataclass(frozen=True)
class DifferenceCell:
    """One metric of one run minus that of the best run, in the unit of its column."""

    difference: str
    interval: tuple[str, str] | None = None
    verdict: str = ""


@dataclass(frozen=True)
class DifferenceRow:
    """One metric."""

    column: TableColumn
    best: int
    cells: Sequence[DifferenceCell]


def difference_rows(
    comparison: RunComparison, stage: str, metrics: Sequence[str], intervals: ComparisonIntervals
) -> Sequence[DifferenceRow]:
    """The differences of all runs from the best, without metrics that fewer than two runs have."""
    rows = []
    for column in map(column_of, metrics):
        best = leading_run(comparison, stage, column)
        if best is not None:
            cells = [
                _cell(comparison, intervals, (number, best), stage, column)
                for number in range(len(comparison.runs))
            ]
            rows.append(DifferenceRow(column, best, cells))
    return rows


def _cell(
    comparison: RunComparison,
    intervals: ComparisonIntervals,
    pair: tuple[int, int],
    stage: str,
    column: TableColumn,
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
    comparison: RunComparison,
    intervals: ComparisonIntervals | None,
    diagrams: Sequence[Diagram],
    metrics: Sequence[str] = MAIN_COLUMNS,
) -> None:
    """Writes a comparison as one page, which appears whole or not at all."""
    tables = [stage_table(comparison, stage, metrics, intervals) for stage in comparison.stages]
    objectives = []
    for run in comparison.runs:
        cells = objective_cells(run.objectives[min(run.objectives)])
        objectives.append((run.name, [cell.replace("`", "") for cell in cells]))
    values = {
        "runs": comparison.runs,
        "num_seeds": sum(len(run.records) for run in comparison.runs),
        "num_metrics": len(metrics),
        "has_intervals": intervals is not None,
        "lacks_seeds": lacks_seeds(comparison),
        "best": [] if intervals is None else best_metrics(comparison, intervals, metrics),
        "legend": legend(intervals),
        "advice": advice(comparison),
        "others": other_tables(comparison, intervals) if tuple(metrics) == MAIN_COLUMNS else [],
        "objective_header": HEADER,
        "objectives": objectives,
        "tables": tables,
        "differences": []
        if intervals is None
        else difference_rows(comparison, comparison.stages[0], metrics, intervals),
        "diagrams": diagrams,
        "stem": path.stem,
    }
    page = render_template(
        "runs.html.j2", values, styles=STYLES, scripts=SCRIPTS, package="trainer.reports"
    )
    with replacing(path) as temporary:
        temporary.write_text(page, "utf-8", errors="replace")


def best_metrics(
    comparison: RunComparison,
    intervals: ComparisonIntervals,
    metrics: Sequence[str] = MAIN_COLUMNS,
) -> Sequence[BestMetrics]:
    """The runs that are the best in some of the metrics as trained, most metrics first."""
    best = {
        column.title: best_run(comparison, comparison.stages[0], column, intervals)
        for column in map(column_of, metrics)
    }
    counts = Counter(number for number in best.values() if number is not None)
    return [
        BestMetrics(
            comparison.runs[number].name, [title for title in best if best[title] == number]
        )
        for number, _ in counts.most_common()
    ]


DRAWN_STAGES = ("raw", "temperature_nll")
"""Stages of the reliability diagrams."""


DIAGRAMS = (
    (
        "reliability",
        "Reliability diagrams",
        "Accuracy by confidence above the share of the samples in each bin. Bars are of all seeds "
        "together, points of single seeds; a hatched bar is the gap to the mean confidence.",
    ),
    (
        "risk-coverage",
        "Risk-coverage curves",
        "Error rate among the samples that a run is most certain of, by the share of samples kept, "
        "for each measure of certainty. Lower is better; a band reaches from the lowest to the "
        "highest of several seeds.",
    ),
    (
        "rejection",
        "Accuracy over rejection",
        "Accuracy of the samples that remain when the least certain ones are rejected.",
    ),
    (
        "roc",
        "ROC curves",
        "Right predictions against wrong ones, and OOD samples against those of the test data.",
    ),
    (
        "weights",
        "Difficulty and weights",
        "Histograms of the difficulty of the training samples and of the weights made from it.",
    ),
)
"""Name in the file, title and caption of the diagrams on the page; the last two exist where runs
have both right and wrong predictions, or OOD data, and where they have weights by scores."""

TABLE_FILES = (".md", ".tex", ".csv", ".json", "")


def require_table_file(out: Path) -> None:
    """Refuses a path that cannot become a file of a comparison."""
    require_output_file(out, TABLE_FILES, TrainingError)


def write_comparison(
    comparison: RunComparison,
    out: Path,
    intervals: ComparisonIntervals | None = None,
    metrics: Sequence[str] | None = None,
) -> Path | None:
    """Writes a comparison in the format of the file's ending.

    `.tex` are tables for booktabs, `.csv` the metrics and `.json` everything for programs. `.md`,
    or no ending, is Markdown beside a page, CSV, JSON and diagrams. Next to `table.md`:
    `table.html`, one page with the tables and the diagrams; `table.csv` with mean, std, n and the
    interval of every metric, `table-seeds.csv` with the value of every seed,
    `table-differences.csv` with the interval of the difference of each pair of runs, and
    `table.json` with all three. As .png and .svg: `table-reliability` before and after temperature
    scaling, `table-risk-coverage`, `table-rejection`, `table-roc` and, of runs with weights by
    scores, `table-weights`. CSV and JSON hold fractions, as in a record.

    Args:
        metrics: Metrics in the order of the tables; None shows MAIN_COLUMNS and what the runs were
            evaluated on besides the test data, and writes all metrics into CSV and JSON.

    Returns:
        The page; None where the file is all there is.
    """
    require_table_file(out)
    shown = MAIN_COLUMNS if metrics is None else tuple(metrics)
    kind = out.suffix.lower()
    if kind == ".tex":
        _write_text(out, latex_tables(comparison, shown, intervals))
        return None
    rows = {
        "metrics": _summary_rows(comparison, intervals, metrics),
        "seeds": _seed_rows(comparison, metrics),
        "differences": _difference_rows(comparison, intervals),
    }
    if kind != ".json":
        run_folder.write_csv(out.with_name(f"{out.stem}.csv"), rows["metrics"])
    if kind != ".csv":
        objectives = {run.name: run.objectives for run in comparison.runs}
        run_folder.write_json(out.with_name(f"{out.stem}.json"), {**rows, "objectives": objectives})
    if kind in {".csv", ".json"}:
        return None
    for name in ("seeds", "differences"):
        run_folder.write_csv(out.with_name(f"{out.stem}-{name}.csv"), rows[name])
    _write_text(out.with_name(f"{out.stem}.md"), markdown_table(comparison, shown, intervals))
    page = out.with_name(f"{out.stem}.html")
    write_page(page, comparison, intervals, _draw(comparison, out), shown)
    return page


def _write_text(path: Path, text: str) -> None:
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def _draw_curves(comparison: RunComparison, out: Path) -> list[str]:
    """Draws the curves by all scores; gives the names of those that there are."""
    curves, names = CurvesOfRuns(comparison), [run.name for run in comparison.runs]
    accuracies = curves.accuracies
    risks = [
        Panel(panel.title, {name: 1 - values for name, values in panel.curves.items()})
        for panel in accuracies
    ]
    drawn: dict[str, tuple[Sequence[Sequence[Panel]], Axis]] = {
        "risk-coverage": ([risks], COVERAGE),
        "rejection": ([accuracies], REJECTION),
        "roc": (list(curves.rocs.values()), FALSE_POSITIVES),
    }
    for name, (groups, axis) in drawn.items():
        if groups:
            draw_panels(groups, axis, names, out.with_name(f"{out.stem}-{name}"))
        else:
            _remove_pictures(out, name)
    return [name for name, (groups, _) in drawn.items() if groups]


def _remove_pictures(out: Path, name: str) -> None:
    """Removes pictures of an earlier comparison, which would not be of these runs."""
    for suffix in FORMATS:
        out.with_name(f"{out.stem}-{name}{suffix}").unlink(missing_ok=True)


def _draw(comparison: RunComparison, out: Path) -> list[Diagram]:
    """Draws the diagrams; gives those for the page."""
    panels: dict[str, SeedPredictions] = {}
    for run in comparison.runs:
        for stage in DRAWN_STAGES:
            if seeds := _predictions(run, stage):
                panels[f"{run.name}, {STAGE_TITLES[stage]}"] = seeds
    weights = _weights_by_runs(comparison)
    for suffix in FORMATS:
        draw_reliability(panels, out.with_name(f"{out.stem}-reliability{suffix}"))
        if weights:
            draw_weights(weights, out.with_name(f"{out.stem}-weights{suffix}"))
    curves = _draw_curves(comparison, out)
    drawn = ["reliability", *curves]
    if weights:
        drawn.append("weights")
    else:
        _remove_pictures(out, "weights")
    note = "" if has_distances(comparison) else f" {NO_DISTANCES}".replace("`", "")
    return [
        Diagram(
            title,
            caption + (note if name in curves else ""),
            out.with_name(f"{out.stem}-{name}.svg"),
        )
        for name, title, caption in DIAGRAMS
        if name in drawn
    ]


def _predictions(run: ComparedRun, stage: str) -> SeedPredictions:
    """Logits and targets of the seeds that have the stage."""
    seeds = [
        seed_predictions(run, seed, stage) for seed in run.records if stage in run.records[seed]
    ]
    return [(each.logits, each.targets) for each in seeds]


def _weights_by_runs(comparison: RunComparison) -> dict[str, WeightsOfRun]:
    """The weights of all runs that have some, by the names of the runs that share them."""
    names: dict[str, list[str]] = {}
    weights: dict[str, WeightsOfRun] = {}
    for run in comparison.runs:
        objectives = list(run.objectives.values())
        distributions = [each["distribution"] for each in objectives if "distribution" in each]
        if distributions:
            shared = WeightsOfRun(distributions, objectives[0]["scores"])
            key = json.dumps([shared.distributions, shared.scores])
            names.setdefault(key, []).append(run.name)
            weights[key] = shared
    return {"; ".join(names[key]): each for key, each in weights.items()}


def _summary_rows(
    comparison: RunComparison, intervals: ComparisonIntervals | None, chosen: Sequence[str] | None
) -> list[dict[str, Any]]:
    """The metrics chosen, or every metric that any record has, in the order of the records."""
    records = [record for run in comparison.runs for record in run.records.values()]
    metrics = {
        stage: chosen
        or list(dict.fromkeys(name for record in records for name in record.get(stage, {})))
        for stage in comparison.stages
    }
    rows = []
    for number, run in enumerate(comparison.runs):
        for stage, metric in ((at, name) for at, names in metrics.items() for name in names):
            if (summary := summarise(run, stage, metric)) is not None:
                interval = intervals.interval(number, stage, metric) if intervals else None
                low, high = interval or (None, None)
                keys = {"run": run.name, "stage": stage, "metric": metric}
                values = {"mean": summary.mean, "std": summary.std, "n": summary.num_seeds}
                rows.append(keys | values | {"low": low, "high": high})
    return rows


def _difference_rows(
    comparison: RunComparison, intervals: ComparisonIntervals | None
) -> list[dict[str, Any]]:
    """The difference of every pair of runs, the first minus the second."""
    if intervals is None:
        return []
    rows = []
    for first, second in itertools.combinations(range(len(comparison.runs)), 2):
        runs = comparison.runs[first], comparison.runs[second]
        for stage, metric in intervals.metrics:
            means = [each.mean for run in runs if (each := summarise(run, stage, metric))]
            interval = intervals.difference(first, second, stage, metric)
            if interval is not None and len(means) == len(runs):
                keys = {"first": runs[0].name, "second": runs[1].name}
                values = {"difference": means[0] - means[1], "low": interval[0]}
                names = {"stage": stage, "metric": metric}
                rows.append(keys | names | values | {"high": interval[1]})
    return rows


def _seed_rows(comparison: RunComparison, chosen: Sequence[str] | None) -> list[dict[str, Any]]:
    return [
        {"run": run.name, "seed": seed, "stage": stage, "metric": metric, "value": metrics[metric]}
        for run in comparison.runs
        for seed, record in run.records.items()
        for stage, metrics in record.items()
        for metric in chosen or metrics
        if metric in metrics
    ]
