"""Figures of a run's predictions: reliability, certainty, gradients, coverage and rejection."""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from trainer.losses import LOSSES, make_loss
from trainer.metrics.calibration import NUM_BINS, bin_of, equal_width_bins
from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.selective import accuracy_over_rejection, certainty_and_correct
from trainer.reports.diagrams import (
    BLUE,
    COVERAGES,
    ORANGE,
    draw_reliability,
    draw_risk_coverage,
    risk_curve,
    save_picture,
    style,
)
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure, Row, draw_lines
from trainer.reports.figures.sources import Sources
from trainer.runs.model_file import read_recipe

Seeds = Mapping[str, Sequence[tuple[int, Tensor, Tensor]]]
"""Seed, logits and targets of every seed with predictions, by the name of the run."""

HISTOGRAM_BINS = 25
GRADIENTS = "gradients-of-samples"
LOSSES_OF_BATCHES = {"mmce", "mmce_weighted"}
NOT_OF_SAMPLES = "depends on more than the prediction and the label of a sample"
UNFINISHED = "not finished, without predictions"
NAMES = (
    "reliability",
    "reliability-temperature-scaled",
    "confidence",
    "entropy",
    "risk-over-coverage",
    "accuracy-over-rejection",
)


def prediction_figures(sources: Sources) -> Drawn:
    """The figures of NAMES, of the runs that have predictions."""
    if not sources.runs:
        return [LeftOutOfFigure(name, "no run is given") for name in NAMES]
    found: list[Figure | LeftOutOfFigure] = []
    seeds: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    scaled: dict[str, list[tuple[int, Tensor, Tensor]]] = {}
    for run, seed in sources.seeds():
        if (saved := seed.predictions) is None:
            found += [
                LeftOutOfFigure(name, UNFINISHED, run=run.name, seed=seed.seed) for name in NAMES
            ]
            continue
        seeds.setdefault(run.name, []).append((seed.seed, saved.logits, saved.targets))
        if seed.temperature is None:
            reason = "no temperature, which takes validation samples besides test data"
            name = "reliability-temperature-scaled"
            found.append(LeftOutOfFigure(name, reason, run=run.name, seed=seed.seed))
            continue
        divided = saved.logits.double() / seed.temperature
        scaled.setdefault(run.name, []).append((seed.seed, divided, saved.targets))
    if seeds:
        found.append(_reliability(seeds, "reliability", "as trained"))
    if scaled:
        text = "after scaling by the temperature with the least NLL of the validation samples"
        found.append(_reliability(scaled, "reliability-temperature-scaled", text))
    if not seeds:
        return found
    return [*found, _confidence(seeds), _entropy(seeds), _risk(seeds), _rejection(seeds)]


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
    values = _over_seeds(seeds, "msp")
    caption = (
        "Histogram of the confidence of rightly and of wrongly classified samples, of all seeds of "
        "a run together; shares are of all its samples."
    )
    paper = "Mukhoti et al. (2020), figures A.1 and C.2a; Cui et al. (2023), figure 11"
    return _histogram("confidence", values, ("confidence", 1.0), caption, paper)


def _entropy(seeds: Seeds) -> Figure:
    values = {
        run: (-certainty, correct)
        for run, (certainty, correct) in _over_seeds(seeds, "entropy").items()
    }
    classes = max(2, *(logits.shape[1] for each in seeds.values() for _, logits, _ in each))
    caption = (
        "Histogram of the entropy of the predictions of rightly and of wrongly classified samples, "
        "up to that of all classes alike, of all seeds of a run together; shares are of all its "
        "samples."
    )
    label = ("entropy of the prediction (nats)", math.log(classes))
    return _histogram("entropy", values, label, caption, "Cui et al. (2023), figure 11")


def _over_seeds(seeds: Seeds, by: str) -> dict[str, tuple[Tensor, Tensor]]:
    """Certainty and correctness of the samples of each run, its seeds one after another."""
    found = {}
    for run, each in seeds.items():
        samples = [certainty_and_correct(logits, targets, by) for _, logits, targets in each]
        certainty, correct = (torch.cat(parts) for parts in zip(*samples, strict=True))
        found[run] = certainty, correct
    return found


def gradient_figures(sources: Sources) -> Drawn:
    """The figure GRADIENTS, of the runs whose loss is a sum over samples."""
    if not sources.runs:
        return [LeftOutOfFigure(GRADIENTS, "no run is given")]
    found: list[Figure | LeftOutOfFigure] = []
    parts: dict[str, list[tuple[Tensor, Tensor]]] = {}
    for run, seed in sources.seeds():
        loss = read_recipe(seed.folder)[0].loss
        if loss.name not in LOSSES.keys() - LOSSES_OF_BATCHES:
            reason = f"the loss, {loss.name}, {NOT_OF_SAMPLES}"
            found.append(LeftOutOfFigure(GRADIENTS, reason, run=run.name, seed=seed.seed))
        elif (saved := seed.predictions) is None:
            found.append(LeftOutOfFigure(GRADIENTS, UNFINISHED, run=run.name, seed=seed.seed))
        else:
            norms = gradient_norms(
                make_loss(loss.name, **loss.constants), saved.logits, saved.targets
            )
            correct = confidence_and_correct(saved.logits, saved.targets)[1]
            parts.setdefault(run.name, []).append((norms, correct))
    values = {}
    for run_name, each in parts.items():
        norms, correct = (torch.cat(columns) for columns in zip(*each, strict=True))
        values[run_name] = norms, correct
    largest = max((float(norms.max()) for norms, _ in values.values()), default=0.0)
    if largest > 0:
        caption = (
            "Histogram of the norm of each sample's gradient of the loss, without its entropy "
            "term, by the logits: that by the last layer's weights is this times the norm of the "
            "features. All seeds of a run together."
        )
        paper = "Mukhoti et al. (2020), figures 3b to 3d, whose gradients are by the weights"
        label = ("norm of the gradient by the logits", largest)
        found.append(_histogram(GRADIENTS, values, label, caption, paper))
    return found


def gradient_norms(
    loss: Callable[[Tensor, Tensor], Tensor], logits: Tensor, targets: Tensor
) -> Tensor:
    """Euclidean norm of the gradient of each sample's loss by its logits. Shape (samples,)."""
    with torch.enable_grad():
        leaf = logits.double().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(leaf, targets).sum(), leaf)
    return gradient.norm(dim=1)


def _histogram(
    name: str,
    values: Mapping[str, tuple[Tensor, Tensor]],
    axis: tuple[str, float],
    caption: str,
    paper: str,
) -> Figure:
    """Shares of rightly and wrongly classified samples in bins of an axis from 0 to its end.

    The values are from 0 to that end, with the correctness of each, by the name of the run.
    """
    _, end = axis
    rows: list[Row] = []
    for run, (numbers, correct) in values.items():
        right = correct.numpy()
        bins = bin_of((numbers / end).numpy(), HISTOGRAM_BINS)
        shares = [
            np.bincount(bins[chosen], minlength=HISTOGRAM_BINS) / len(bins)
            for chosen in (right, ~right)
        ]
        rows += [
            {
                "run": run,
                "lower": end * number / HISTOGRAM_BINS,
                "upper": end * (number + 1) / HISTOGRAM_BINS,
                "share_right": float(shares[0][number]),
                "share_wrong": float(shares[1][number]),
            }
            for number in range(HISTOGRAM_BINS)
        ]
    return Figure(name, caption, paper, rows, partial(_draw_histograms, rows, axis))


def _draw_histograms(rows: Sequence[Row], axis: tuple[str, float], path: Path) -> None:
    from matplotlib.figure import Figure as Canvas

    label, end = axis
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
            width = end / HISTOGRAM_BINS
            axes.bar(lower, right, width, align="edge", color=BLUE, label="right")
            axes.bar(lower, wrong, width, bottom=right, align="edge", color=ORANGE, label="wrong")
            axes.set_title(name, fontsize="small", parse_math=False)
            axes.set(xlim=(0, end), ylabel="share of the samples")
        axes.set_xlabel(label)
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
    rows: list[Row] = []
    for run, each in seeds.items():
        for seed, logits, targets in each:
            curves = [
                accuracy_over_rejection(
                    *certainty_and_correct(logits, targets, by), rejected
                ).accuracies
                for by in ("msp", "entropy")
            ]
            rows += [
                {
                    "run": run,
                    "seed": seed,
                    "rejected": share,
                    "accuracy": float(by_confidence),
                    "accuracy_by_entropy": float(by_entropy),
                }
                for share, by_confidence, by_entropy in zip(rejected, *curves, strict=True)
            ]
    caption = (
        "Accuracy of the samples that remain when those of the smallest confidence, or of the "
        "largest entropy, are rejected."
    )
    panels = {
        "accuracy": "accuracy, rejected by confidence",
        "accuracy_by_entropy": "accuracy, rejected by entropy",
    }
    paper = "Cui et al. (2023), figure 4, which is by entropy"
    draw = partial(draw_lines, rows, ("rejected", "share of samples rejected"), panels)
    return Figure("accuracy-over-rejection", caption, paper, rows, draw)
