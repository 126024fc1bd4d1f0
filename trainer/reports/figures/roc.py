"""ROC curves of OOD detection and of misclassification detection, of several runs together."""

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from trainer import run_folder
from trainer.evaluation.roc_file import MISCLASSIFICATION, read_curves
from trainer.reports.figures.figure import Drawn, Figure, LeftOut, Row
from trainer.reports.figures.sources import Sources
from trainer.reports.pictures import GREY, line_of, save_picture, style
from trainer.reports.roc_diagram import PANELS_PER_ROW, title_of

NAME = "roc"
SCORE = "msp"
STAGE = "raw"


def roc_figures(sources: Sources) -> Drawn:
    """The figure NAME, of the seeds that `difficulty evaluate` has written curves of."""
    if not sources.runs:
        return [LeftOut(NAME, "no run is given")]
    found: list[Figure | LeftOut] = []
    rows: list[Row] = []
    for run, seed in sources.seeds():
        path = seed.folder / run_folder.ROC
        curves = [
            each
            for each in (read_curves(path) if path.is_file() else [])
            if (each.by, each.stage) == (SCORE, STAGE)
        ]
        if all(each.detection == MISCLASSIFICATION for each in curves):
            reason = (
                f"seed {seed.seed} of {run.name} has no curve of OOD samples; evaluate it with "
            )
            found.append(LeftOut(NAME, f"{reason}`difficulty evaluate {run.folder} --ood DATASET`"))
        rows += [
            {
                "run": run.name,
                "seed": seed.seed,
                "detection": each.detection,
                "false_positive_rate": float(false),
                "true_positive_rate": float(true),
            }
            for each in curves
            for false, true in zip(
                each.curve.false_positive_rates, each.curve.true_positive_rates, strict=True
            )
        ]
    if rows:
        caption = (
            "ROC curves by the largest probability, as trained, with a line for each seed: OOD "
            "samples against those of the test data, and correct predictions against wrong ones."
        )
        paper = "Mukhoti et al. (2020), figure 5"
        found.append(Figure(NAME, caption, paper, rows, partial(_draw, rows)))
    return found


def _draw(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    names, detections = (
        list(dict.fromkeys(str(row[key]) for row in rows)) for key in ("run", "detection")
    )
    across = min(len(detections), PANELS_PER_ROW)
    down = math.ceil(len(detections) / across)
    with style():
        size = (4 * across, 4.2 * down + 0.2 * len(names))
        figure = Canvas(figsize=size, layout="constrained")
        handles = {}
        for number, detection in enumerate(detections):
            axes = figure.add_subplot(down, across, number + 1)
            own = [row for row in rows if row["detection"] == detection]
            for run, seed in dict.fromkeys((str(row["run"]), row["seed"]) for row in own):
                points = [
                    (float(row["false_positive_rate"] or 0), float(row["true_positive_rate"] or 0))
                    for row in own
                    if (row["run"], row["seed"]) == (run, seed)
                ]
                line = line_of(names.index(run))
                (handles[run],) = axes.plot(*zip(*points, strict=True), linewidth=1.2, **line)
            axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1)
            axes.set_title(title_of(detection), fontsize="small", parse_math=False)
            axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="false positive rate")
            axes.set_ylabel("true positive rate")
        legend = figure.legend(
            list(handles.values()), list(handles), loc="outside lower center", fontsize="small"
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        save_picture(figure, path)
