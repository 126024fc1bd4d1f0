"""Figures of a run's predictions: reliability, confidence, risk over coverage, rejection.

ROC curves of OOD detection and of misclassification detection, of several runs together.
"""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainer import run_folder
from trainer.evaluation.record import MISCLASSIFICATION, read_curves
from trainer.metrics.calibration import NUM_BINS, bin_of, equal_width_bins
from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.selective import accuracy_over_rejection
from trainer.reports.diagrams import (
    BLUE,
    COVERAGES,
    GREY,
    ORANGE,
    draw_reliability,
    draw_risk_coverage,
    line_of,
    risk_curve,
    save_picture,
    style,
    title_of,
)
from trainer.reports.diagrams import ROC_PANELS_PER_ROW as PANELS_PER_ROW
from trainer.reports.figures.figure import Drawn, Figure, LeftOut, Row, draw_lines
from trainer.reports.figures.sources import Sources

Seeds = Mapping[str, Sequence[tuple[int, Tensor, Tensor]]]
"""Seed, logits and targets of every seed with predictions, by the name of the run."""

HISTOGRAM_BINS = 25
NAMES = (
    "reliability",
    "reliability-temperature-scaled",
    "confidence",
    "risk-over-coverage",
    "accuracy-over-rejection",
)


def prediction_figures(sources: Sources) -> Drawn:
    """The figures of NAMES, of the runs that have predictions."""
    if not sources.runs:
        return [LeftOut(name, "no run is given") for name in NAMES]
    found: list[Figure | LeftOut] = []
    seeds: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    scaled: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    for run, seed in sources.seeds():
        if (saved := seed.predictions) is None:
            reason = f"seed {seed.seed} of {run.name} is not finished and has no predictions"
            found += [LeftOut(name, reason) for name in NAMES]
            continue
        seeds.setdefault(run.name, []).append((seed.seed, saved.logits, saved.targets))
        if seed.temperature is None:
            reason = (
                f"seed {seed.seed} of {run.name} has no temperature, which takes validation "
                "samples besides test data"
            )
            found.append(LeftOut("reliability-temperature-scaled", reason))
            continue
        divided = saved.logits.double() / seed.temperature
        scaled.setdefault(run.name, []).append((seed.seed, divided, saved.targets))
    if seeds:
        found.append(_reliability(seeds, "reliability", "as trained"))
    if scaled:
        text = "after scaling by the temperature with the least NLL of the validation samples"
        found.append(_reliability(scaled, "reliability-temperature-scaled", text))
    return [*found, *([_confidence(seeds), _risk(seeds), _rejection(seeds)] if seeds else [])]


def _reliability(seeds: Seeds, name: str, stage: str) -> Figure:
    rows: list[Row] = []
    for run, each in seeds.items():
        for seed, logits, targets in each:
            bins = equal_width_bins(*confidence_and_correct(logits, targets))
            rows += [
                {
                    "run": run,
                    "seed": seed,
                    "lower": float(bins.lower[number]),
                    "upper": float(bins.upper[number]),
                    "samples": int(bins.counts[number]),
                    "mean_confidence": float(bins.confidences[number]) if count else None,
                    "accuracy": float(bins.accuracies[number]) if count else None,
                }
                for number, count in enumerate(bins.counts)
            ]
    caption = (
        f"Accuracy in {NUM_BINS} bins of confidence, {stage}, above the share of the samples in "
        "each. A hatched bar reaches from the accuracy to the mean confidence."
    )
    paper = "Mukhoti et al. (2020), figure A.1"
    return Figure(name, caption, paper, rows, partial(draw_reliability, _without_seed(seeds)))


def _without_seed(seeds: Seeds) -> dict[str, list[tuple[Tensor, Tensor]]]:
    return {
        name: [(logits, targets) for _, logits, targets in each] for name, each in seeds.items()
    }


def _confidence(seeds: Seeds) -> Figure:
    rows: list[Row] = []
    for run, each in seeds.items():
        samples = [confidence_and_correct(logits, targets) for _, logits, targets in each]
        confidence, correct = (torch.cat(parts).numpy() for parts in zip(*samples, strict=True))
        numbers = bin_of(confidence, HISTOGRAM_BINS)
        right, wrong = (
            np.bincount(numbers[chosen], minlength=HISTOGRAM_BINS) / len(confidence)
            for chosen in (correct, ~correct)
        )
        rows += [
            {
                "run": run,
                "lower": number / HISTOGRAM_BINS,
                "upper": (number + 1) / HISTOGRAM_BINS,
                "share_right": float(right[number]),
                "share_wrong": float(wrong[number]),
            }
            for number in range(HISTOGRAM_BINS)
        ]
    caption = (
        "Histogram of the confidence of rightly and of wrongly classified samples, of all seeds of "
        "a run together; shares are of all its samples."
    )
    paper = "Mukhoti et al. (2020), figures A.1 and C.2a; Cui et al. (2023), figure 11"
    return Figure("confidence", caption, paper, rows, partial(_draw_confidence, rows))


def _draw_confidence(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    with style():
        figure = Canvas(figsize=(6.4, 2.4 * len(names) + 0.4), layout="constrained")
        for number, name in enumerate(names):
            axes = figure.add_subplot(len(names), 1, number + 1)
            own = [row for row in rows if row["run"] == name]
            lower, right, wrong = (
                np.array([row[key] for row in own], dtype=np.float64)
                for key in ("lower", "share_right", "share_wrong")
            )
            width = 1 / HISTOGRAM_BINS
            axes.bar(lower, right, width, align="edge", color=BLUE, label="right")
            axes.bar(lower, wrong, width, bottom=right, align="edge", color=ORANGE, label="wrong")
            axes.set_title(name, fontsize="small", parse_math=False)
            axes.set(xlim=(0, 1), ylabel="share of the samples")
        axes.set_xlabel("confidence")
        figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
        save_picture(figure, path)


def _risk(seeds: Seeds) -> Figure:
    rows: list[Row] = [
        {"run": run, "seed": seed, "coverage": float(coverage), "risk": float(risk)}
        for run, each in seeds.items()
        for seed, logits, targets in each
        for coverage, risk in zip(COVERAGES, risk_curve(logits, targets), strict=True)
    ]
    caption = (
        "Error rate among the share of samples that a classifier is most certain of, by largest "
        "probability."
    )
    paper = "the curve whose area is the AURC of Moon et al. (2020)"
    draw = partial(draw_risk_coverage, _without_seed(seeds))
    return Figure("risk-over-coverage", caption, paper, rows, draw)


def _rejection(seeds: Seeds) -> Figure:
    rejected = [number / 100 for number in range(100)]
    rows: list[Row] = [
        {"run": run, "seed": seed, "rejected": share, "accuracy": float(accuracy)}
        for run, each in seeds.items()
        for seed, logits, targets in each
        for share, accuracy in zip(
            rejected,
            accuracy_over_rejection(*confidence_and_correct(logits, targets), rejected).accuracies,
            strict=True,
        )
    ]
    caption = "Accuracy of the samples that remain when the least certain ones are rejected."
    panels = {"accuracy": "accuracy of the others"}
    draw = partial(draw_lines, rows, ("rejected", "share of samples rejected"), panels)
    return Figure("accuracy-over-rejection", caption, "Cui et al. (2023), figure 4", rows, draw)


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
