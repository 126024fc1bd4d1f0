"""Risk-coverage curves: the error rate among the samples that a classifier is most certain of."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.selective import accuracy_over_rejection, aurc
from trainer.reports.pictures import line_of, require_picture, save_picture, style

COVERAGES = np.arange(1, 201) / 200


def draw_risk_coverage(
    predictions: Mapping[str, Sequence[tuple[Tensor, Tensor]]], path: Path
) -> None:
    """Draws the error rate over the share of samples kept, by largest probability.

    A line is the mean over the seeds of a classifier, and a band reaches from the lowest to the
    highest of several seeds. The legend has the AURC, mean and standard deviation over the seeds.

    Args:
        predictions: Logits (samples, classes) and targets (samples,) of each seed, by the name of
            the classifier.
        path: The .png or .svg file to write; an existing one is replaced.

    Raises:
        MetricError: There is nothing to draw, the file is of another type, or the predictions are
            invalid.
    """
    require_picture(path, len(predictions), "classifiers")
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(6.4, 3.6 + 0.2 * len(predictions)), layout="constrained")
        axes = figure.subplots()
        for number, (name, seeds) in enumerate(predictions.items()):
            risks = 100 * np.stack([risk_curve(*each) for each in seeds])
            line, percent = line_of(number), 100 * COVERAGES
            axes.plot(percent, risks.mean(0), label=_label(name, seeds), **line)
            if len(seeds) > 1:
                axes.fill_between(
                    percent,
                    risks.min(0),
                    risks.max(0),
                    color=line["color"],
                    alpha=0.15,
                    linewidth=0,
                )
        axes.set(xlim=(0, 100), xlabel="coverage: most certain samples kept (%)")
        axes.set_ylim(bottom=0)
        axes.set_ylabel("risk: error rate among them (%)")
        legend = figure.legend(loc="outside lower center", ncols=1, fontsize="small")
        for text in legend.get_texts():
            text.set_parse_math(False)
        save_picture(figure, path)


def risk_curve(logits: Tensor, targets: Tensor) -> NDArray[np.float64]:
    """Error rate among the most certain samples, for each of COVERAGES. Shape (points,).

    Args:
        logits: Shape (samples, classes).
        targets: Class indices. Shape (samples,).

    Raises:
        MetricError: Logits are invalid, or a target is not one of the classes.
    """
    curve = accuracy_over_rejection(
        *confidence_and_correct(logits, targets), (1 - COVERAGES).tolist()
    )
    return 1 - curve.accuracies


def _label(name: str, seeds: Sequence[tuple[Tensor, Tensor]]) -> str:
    areas = [1000 * aurc(*confidence_and_correct(*each)) for each in seeds]
    spread = f" ± {statistics.stdev(areas):.1f}" if len(areas) > 1 else ""
    return f"{name}: AURC {statistics.fmean(areas):.1f}{spread} (x 1000)"
