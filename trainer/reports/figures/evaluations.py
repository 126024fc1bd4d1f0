"""Figures of what `difficulty evaluate` wrote: ROC curves, intervals, ECE under corruption."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from trainer import run_folder
from trainer.evaluation.record import MISCLASSIFICATION, STAGES, NamedCurve, read_curves
from trainer.reports.comparison_table import STAGE_TITLES
from trainer.reports.diagrams import GREY, line_of, save_picture, style, title_of
from trainer.reports.diagrams import ROC_PANELS_PER_ROW as PANELS_PER_ROW
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure, Row
from trainer.reports.figures.sources import RunSource, SeedFolder, Sources


@dataclass(frozen=True)
class _Roc:
    """A figure of the ROC curves by one score at some stages."""

    by: str
    stages: Sequence[str]
    caption: str
    paper: str


ROC_FIGURES: Mapping[str, _Roc] = {
    "roc": _Roc(
        "msp",
        ("raw",),
        "ROC curves by the largest probability, as trained, with a line for each seed: OOD "
        "samples against those of the test data, and correct predictions against wrong ones.",
        "the detections of Cui et al. (2023), tables 3 and 4",
    ),
    "roc-by-entropy": _Roc(
        "entropy",
        ("raw", "temperature_ece"),
        "ROC curves by the entropy of the prediction, as trained and after scaling by the "
        "temperature with the least ECE of the validation samples, with a line for each seed.",
        "Mukhoti et al. (2020), figure 5; Ghosh et al. (2022), figure 6",
    ),
}


def roc_figures(sources: Sources) -> Drawn:
    """ROC_FIGURES, of the seeds that `difficulty evaluate` has written curves of."""
    if not sources.runs:
        return [LeftOutOfFigure(name, "no run is given") for name in ROC_FIGURES]
    found: list[Figure | LeftOutOfFigure] = []
    rows: dict[str, list[Row]] = {name: [] for name in ROC_FIGURES}
    for run, seed in sources.seeds():
        path = seed.folder / run_folder.ROC
        curves = read_curves(path) if path.is_file() else []
        if all(each.detection == MISCLASSIFICATION for each in curves):
            remedy = f"`difficulty evaluate {run.folder} --ood DATASET` adds it"
            found += [
                LeftOutOfFigure(name, "no curve of OOD samples", remedy, run.name, seed.seed)
                for name in ROC_FIGURES
            ]
        for name, plan in ROC_FIGURES.items():
            rows[name] += _curve_rows(run, seed, plan, curves)
    found += [
        Figure(name, plan.caption, plan.paper, rows[name], partial(_draw_roc, rows[name]))
        for name, plan in ROC_FIGURES.items()
        if rows[name]
    ]
    return found


def _curve_rows(
    run: RunSource, seed: SeedFolder, plan: _Roc, curves: Sequence[NamedCurve]
) -> list[Row]:
    return [
        {
            "run": run.name,
            "seed": seed.seed,
            "detection": each.detection,
            "stage": each.stage,
            "false_positive_rate": float(false),
            "true_positive_rate": float(true),
        }
        for each in curves
        if each.by == plan.by and each.stage in plan.stages
        for false, true in zip(
            each.curve.false_positive_rates, each.curve.true_positive_rates, strict=True
        )
    ]


def _draw_roc(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    panels = list(dict.fromkeys((str(row["detection"]), str(row["stage"])) for row in rows))
    across = min(len(panels), PANELS_PER_ROW)
    down = math.ceil(len(panels) / across)
    with style():
        size = (4 * across, 4.2 * down + 0.2 * len(names))
        figure = Canvas(figsize=size, layout="constrained")
        handles = {}
        for number, (detection, stage) in enumerate(panels):
            axes = figure.add_subplot(down, across, number + 1)
            own = [row for row in rows if (row["detection"], row["stage"]) == (detection, stage)]
            for run, seed in dict.fromkeys((str(row["run"]), row["seed"]) for row in own):
                points = [
                    (float(row["false_positive_rate"] or 0), float(row["true_positive_rate"] or 0))
                    for row in own
                    if (row["run"], row["seed"]) == (run, seed)
                ]
                line = line_of(names.index(run))
                (handles[run],) = axes.plot(*zip(*points, strict=True), linewidth=1.2, **line)
            axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
            title = f"{title_of(detection)}\n{STAGE_TITLES[stage]}"
            axes.set_title(title, fontsize="small", parse_math=False)
            axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="false positive rate")
            axes.set_ylabel("true positive rate")
        legend = figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", fontsize="small"
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        save_picture(figure, path)


INTERVALS = "calibration-intervals"
ERRORS: Mapping[str, str] = {
    "ece": "ECE",
    "adaptive_ece": "adaptive ECE",
    "classwise_ece": "classwise ECE",
}


def interval_figures(sources: Sources) -> Drawn:
    """The figure INTERVALS, of the seeds that `difficulty evaluate` has resampled."""
    if not sources.runs:
        return [LeftOutOfFigure(INTERVALS, "no run is given")]
    found: list[Figure | LeftOutOfFigure] = []
    rows: list[Row] = []
    levels = set()
    for run, seed, record in _records(sources, run_folder.EVALUATION, INTERVALS, found):
        if "intervals" not in record:
            evaluated = f"`difficulty evaluate {run.folder}` adds them"
            found.append(LeftOutOfFigure(INTERVALS, "no intervals", evaluated, run.name, seed.seed))
            continue
        levels.add(f"{100 * record['intervals']['level']:g} %")
        rows += [
            {
                "run": run.name,
                "seed": seed.seed,
                "stage": stage,
                "metric": metric,
                "value": record[stage][metric],
                "low": record[stage][f"{metric}_low"],
                "high": record[stage][f"{metric}_high"],
            }
            for stage in STAGES
            if stage in record
            for metric in ERRORS
        ]
    if rows:
        caption = (
            f"Calibration errors as trained and scaled by each temperature, with the "
            f"{' and '.join(sorted(levels))} intervals of a bootstrap over the samples, which for "
            "a calibration error may lie above its value. Means over the seeds, of the values and "
            "of the ends of their intervals."
        )
        paper = "Mukhoti et al. (2020), figures 4 and G.1 to G.4"
        found.append(Figure(INTERVALS, caption, paper, rows, partial(_draw_intervals, rows)))
    return found


def _records(
    sources: Sources, file: str, name: str, left_out: list[Figure | LeftOutOfFigure]
) -> Iterator[tuple[RunSource, SeedFolder, dict[str, Any]]]:
    """The record of every seed that has one, and what is left out of the figure for the others."""
    option = " --corruptions" if file == run_folder.CORRUPTIONS else ""
    for run, seed in sources.seeds():
        path = seed.folder / file
        if path.is_file():
            yield run, seed, run_folder.read_json(path)
        else:
            remedy = f"`difficulty evaluate {run.folder}{option}` writes it"
            left_out.append(LeftOutOfFigure(name, f"no {file}", remedy, run.name, seed.seed))


def _draw_intervals(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    stages = [each for each in STAGES if any(row["stage"] == each for row in rows)]
    width = 0.8 / len(names)
    with style():
        figure = Canvas(figsize=(3.4 * len(ERRORS), 3.6 + 0.2 * len(names)), layout="constrained")
        for panel, (metric, title) in enumerate(ERRORS.items()):
            axes = figure.add_subplot(1, len(ERRORS), panel + 1)
            for number, name in enumerate(names):
                own = [row for row in rows if (row["run"], row["metric"]) == (name, metric)]
                numbers = _means(own, stages)
                places = np.arange(len(stages)) + (number - (len(names) - 1) / 2) * width
                axes.bar(places, numbers[:, 0], width, color=line_of(number)["color"], label=name)
                axes.vlines(places, numbers[:, 1], numbers[:, 2], color="black", linewidth=1)
            axes.set_title(title, fontsize="small")
            labels = [STAGE_TITLES[each].replace(" by ", "\nby ") for each in stages]
            axes.set_xticks(range(len(stages)), labels, fontsize="x-small")
            axes.set_ylim(bottom=0)
        legend = figure.legend(
            *axes.get_legend_handles_labels(), loc="outside lower center", fontsize="small"
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        save_picture(figure, path)


def _means(rows: Sequence[Row], stages: Sequence[str]) -> np.ndarray[tuple[int, int], Any]:
    """Mean over the seeds of the value and of both ends, NaN without one. Shape (stages, 3)."""
    means = np.full((len(stages), 3), np.nan)
    for place, stage in enumerate(stages):
        for column, key in enumerate(("value", "low", "high")):
            numbers = [row[key] for row in rows if row["stage"] == stage]
            known = [float(each) for each in numbers if each is not None]
            if known:
                means[place, column] = np.mean(known)
    return means


SEVERITY = "ece-over-severity"


def corruption_figures(sources: Sources) -> Drawn:
    """The figure SEVERITY, of the seeds that were evaluated on corrupted images."""
    if not sources.runs:
        return [LeftOutOfFigure(SEVERITY, "no run is given")]
    found: list[Figure | LeftOutOfFigure] = []
    rows: list[Row] = []
    for run, seed, record in _records(sources, run_folder.CORRUPTIONS, SEVERITY, found):
        rows += [
            {
                "run": run.name,
                "seed": seed.seed,
                "corruption": corruption,
                "severity": int(severity),
                "accuracy": stages["raw"]["accuracy"],
                "adaptive_ece": stages["raw"]["adaptive_ece"],
            }
            for corruption, severities in record.items()
            for severity, stages in severities.items()
        ]
    if rows:
        caption = (
            "Adaptive ECE, as trained, of test images at each severity of corruption: a box over "
            "the kinds of corruption, means over the seeds, with the median as its line, the "
            "quartiles as its ends, and whiskers to the lowest and the highest."
        )
        draw = partial(_draw_boxes, rows)
        found.append(Figure(SEVERITY, caption, "Cui et al. (2023), figure 3", rows, draw))
    return found


def _draw_boxes(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas
    from matplotlib.patches import Patch

    names, severities = (
        list(dict.fromkeys(row[key] for row in rows)) for key in ("run", "severity")
    )
    width = 0.8 / len(names)
    with style():
        figure = Canvas(figsize=(7.2, 3.8 + 0.2 * len(names)), layout="constrained")
        axes = figure.add_subplot()
        handles = []
        for number, name in enumerate(names):
            colour = line_of(number)["color"]
            places = np.arange(len(severities)) + (number - (len(names) - 1) / 2) * width
            axes.boxplot(
                [_over_seeds(rows, name, each) for each in severities],
                positions=places,
                widths=0.9 * width,
                whis=(0, 100),
                manage_ticks=False,
                patch_artist=True,
                boxprops={"facecolor": colour, "alpha": 0.5},
                medianprops={"color": "black"},
            )
            handles.append(Patch(facecolor=colour, alpha=0.5, label=str(name)))
        axes.set_xticks(range(len(severities)), [str(each) for each in severities])
        axes.set(xlabel="severity", ylabel="adaptive ECE")
        axes.set_ylim(bottom=0)
        legend = figure.legend(handles=handles, loc="outside lower center", fontsize="small")
        for text in legend.get_texts():
            text.set_parse_math(False)
        save_picture(figure, path)


def _over_seeds(rows: Sequence[Row], name: Any, severity: Any) -> list[float]:  # noqa: ANN401
    """Mean adaptive ECE over the seeds, for each corruption."""
    values: dict[str, list[float]] = {}
    for row in rows:
        if (row["run"], row["severity"]) == (name, severity) and row["adaptive_ece"] is not None:
            values.setdefault(str(row["corruption"]), []).append(float(row["adaptive_ece"]))
    return [float(np.mean(each)) for each in values.values()]
