"""Figures of the page, as SVG. The same results give the same bytes."""

from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

from benchmarks.evidence.data import BACKBONES
from benchmarks.evidence.label_sets import RATES, LabelSet
from benchmarks.evidence.noise import NOISE
from benchmarks.evidence.paper import BINS
from benchmarks.evidence.results import Results
from difficulty_service.base.files import replacing
from difficulty_service.images.corruptions import CORRUPTIONS
from docs.figures.draw import BLUE, GREEN, GREY, ORANGE, STYLE

PURPLE = "#cc79a7"
PLANTED = {
    "suspicion": (BLUE, "o-"),
    "label_margin": (GREEN, "o-"),
    "cleanlab self_confidence": (ORANGE, "s--"),
    "AUM": (PURPLE, "s--"),
    "scikit-learn LDA": (GREY, "s--"),
}
ORDERS = {
    "rmd": (BLUE, "o-"),
    "label_margin": (GREEN, "o-"),
    "md": (ORANGE, "s--"),
    "kmeans": (PURPLE, "s--"),
    "knn": (GREY, "s--"),
}
SOURCES = {"cifar100-test": "CIFAR-100", "tiny-imagenet": "Tiny ImageNet"}


def planted(figure: Figure, results: Results) -> None:
    """AUROC of some scores over the rate of planted noise, with built-in features."""
    panels = figure.subplots(len(SOURCES), len(NOISE), sharex=True, sharey="row", squeeze=False)
    for row, (source, title) in zip(panels, SOURCES.items(), strict=True):
        for axes, kind in zip(row, NOISE, strict=True):
            for column, (colour, style) in PLANTED.items():
                points = [
                    (rate, values["auroc"])
                    for rate in RATES
                    if (
                        values := results.column(
                            "builtin", LabelSet(source, kind, rate), column, "wrong"
                        )
                    )
                ]
                axes.plot(
                    *zip(*points, strict=True) if points else ([], []),
                    style,
                    color=colour,
                    label=column,
                )
            axes.set_title(kind)
        row[0].set_ylabel(f"{title}, AUROC")
    for axes in panels[-1]:
        axes.set_xlabel("share of wrong labels")
    handles, names = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(PLANTED))


def severity(figure: Figure, results: Results) -> None:
    """Mean RMD over corruptions of growing severity, and over labels that are ever farther off."""
    left, right = figure.subplots(1, 2)
    curves = []
    for name in CORRUPTIONS:
        cell = results.cell(f"paper/corruption/{name}")
        if cell is not None:
            curves.append([mean for mean, _ in cell["rmd"]])
            left.plot(cell["severities"], curves[-1], color=GREY, linewidth=0.8)
    if curves:
        left.plot(range(len(curves[0])), np.mean(curves, axis=0), "o-", color=BLUE, label="mean")
        left.legend()
    left.set_xlabel("severity; each grey line is a corruption")
    left.set_ylabel("mean rmd, built-in encoder")
    for backbone, colour in zip(BACKBONES, (BLUE, ORANGE), strict=True):
        cell = results.cell(f"paper/label-noise/{backbone.lower()}")
        if cell is not None:
            means = [mean for mean, _ in cell["rmd"]]
            right.plot(cell["ranks"], means, "o-", color=colour, label=backbone)
    right.set_xlabel("label: 0 right, 1 the most similar other class")
    right.set_ylabel("mean rmd")
    if right.lines:
        right.legend()


def errors(figure: Figure, results: Results) -> None:
    """Errors of eight networks over difficulty: each by rmd, and their mean by other scores."""
    panels = figure.subplots(1, 3, sharey=True)
    bins = range(1, BINS + 1)
    for axes, backbone in zip(panels, BACKBONES, strict=False):
        cell = results.cell(f"paper/errors/{backbone.lower()}")
        for rates in cell["rates"]["rmd"] if cell else ():
            axes.plot(bins, np.multiply(100, rates), color=BLUE, linewidth=0.8)
        axes.set_title(f"eight networks by rmd, {backbone}")
    cell = results.cell("paper/errors/builtin")
    for column, (colour, style) in ORDERS.items() if cell else ():
        mean = 100 * np.mean(cell["rates"][column], axis=0) if cell else []
        panels[2].plot(bins, mean, style, color=colour, label=column, markersize=3)
    panels[2].set_title("mean of eight, builtin")
    if panels[2].lines:
        panels[2].legend(loc="upper left")
    panels[0].set_ylabel("errors (%)")
    for axes in panels:
        axes.set_xlabel("bins of images, easiest to hardest")


FIGURES: dict[str, tuple[Callable[[Figure, Results], None], float, float]] = {
    "planted": (planted, 9, 5),
    "severity": (severity, 8, 3),
    "errors": (errors, 9.5, 3),
}


def draw(results: Results, folder: Path) -> None:
    """Writes every figure into a folder."""
    for name, (plot, width, height) in FIGURES.items():
        with mpl.rc_context(STYLE), replacing(folder / f"evidence-{name}.svg") as temporary:
            figure = Figure(figsize=(width, height))
            plot(figure, results)
            figure.savefig(temporary, format="svg", metadata={"Date": None, "Creator": None})
