"""Draws the figures of the pages from the numbers beside this file.

    python docs/figures/draw.py [FOLDER]

Each `NAME.csv` holds measured numbers and becomes `NAME.svg`, in FOLDER or beside the CSV files.
The same numbers and the same version of matplotlib give the same bytes. The background is white, so
that the figures can be read on light and dark pages.
"""

import csv
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullLocator

HERE = Path(__file__).resolve().parent
BLUE, ORANGE, GREEN, GREY = "#0072b2", "#d55e00", "#009e73", "#767676"
STYLE: dict[Any, Any] = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "figure.constrained_layout.use": True,
    "font.size": 9,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "difficulty",  # the same identifiers in every run
}

Rows = list[dict[str, str]]


def error_rate(figure: Figure, rows: Rows) -> None:
    """Error rate of a classifier in bins of growing difficulty."""
    axes = figure.subplots()
    backbones = [name for name in rows[0] if name != "bin"]
    for backbone, colour in zip(backbones, (BLUE, ORANGE), strict=False):
        heights = [float(row[backbone]) for row in rows]
        axes.plot(range(1, len(rows) + 1), heights, "o-", color=colour, label=backbone)
    axes.set_xticks(range(1, len(rows) + 1))
    axes.set_xlabel("bins of 500 test images, easiest to hardest by rmd")
    axes.set_ylabel("errors of ResNet-110 (%)")
    axes.legend()


def probes(figure: Figure, rows: Rows) -> None:
    """NLL of every method, one panel for each kind of labels."""
    kinds = {"official": "official labels", "aggregated": "9 % wrong", "worst": "40 % wrong"}
    panels = figure.subplots(1, len(kinds), sharey=True)
    for axes, (kind, title) in zip(panels, kinds.items(), strict=True):
        chosen = [row for row in rows if row["labels"] == kind]
        for position, row in enumerate(chosen):
            colour = BLUE if row["method"].startswith("difficulty") else GREY
            axes.errorbar(
                float(row["nll"]), position, xerr=float(row["nll_sd"]), fmt="o", color=colour
            )
        axes.set_title(title)
        axes.set_xlabel("NLL")
    panels[0].set_yticks(range(len(chosen)), [row["method"] for row in chosen])
    panels[0].invert_yaxis()


def eight_networks(figure: Figure, rows: Rows) -> None:
    """Calibration and ranking of published networks before and after temperature scaling."""
    panels = figure.subplots(1, 2, sharey=True)
    for axes, metric, title in zip(
        panels, ("ece", "auroc"), ("ECE (%), lower is better", "AUROC of errors (%)"), strict=True
    ):
        before = [float(row[metric]) for row in rows]
        after = [float(row[f"{metric}_scaled"]) for row in rows]
        axes.hlines(range(len(rows)), before, after, color=GREY)
        axes.plot(before, range(len(rows)), "o", color=ORANGE, label="as trained")
        axes.plot(after, range(len(rows)), "o", color=BLUE, label="temperature scaled")
        axes.set_xlabel(title)
    panels[0].set_xlim(left=0)
    panels[0].set_yticks(range(len(rows)), [row["network"] for row in rows])
    panels[0].invert_yaxis()
    panels[1].legend(loc="upper right")


def streamed(figure: Figure, rows: Rows) -> None:
    """Time and memory of fitting and scoring from disk, by the number of rows."""
    panels = figure.subplots(1, 2)
    runs = {
        "rmd": ("o-", BLUE, "rmd"),
        "file": ("s-", GREEN, "all columns of the score file"),
        "pytorch-ood 0.4, own label": ("^--", ORANGE, "pytorch-ood 0.4, own label"),
    }
    for axes, quantity, title in zip(
        panels, ("seconds", "memory_mb"), ("seconds", "memory (MB)"), strict=True
    ):
        for run, (marker, colour, label) in runs.items():
            chosen = [row for row in rows if row["run"] == run]
            counts = [int(row["rows"]) for row in chosen]
            axes.loglog(
                counts,
                [float(row[quantity]) for row in chosen],
                marker,
                color=colour,
                label=label,
            )
        label_counts(axes)
        axes.set_xlabel("rows of 512 features")
        axes.set_ylabel(title)
    panels[0].legend(loc="upper left")
    panels[0].set_ylim(0.1, 1000)
    panels[1].set_ylim(10, 20_000)


def label_counts(axes: Axes) -> None:
    """Writes both logarithmic axes in plain numbers instead of powers of ten."""
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _position: f"{value:,g}"))
        axis.set_minor_locator(NullLocator())
    axes.set_xticks([50_000, 200_000, 1_281_167, 10_000_000], ["50k", "200k", "1.28M", "10M"])


def corruptions(figure: Figure, rows: Rows) -> None:
    """Mean RMD over the severity of corruptions, one panel for each of their kinds."""
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    colours = (BLUE, ORANGE, GREEN, GREY, "#cc79a7")
    severities = [name for name in rows[0] if name not in ("kind", "corruption")]
    panels = figure.subplots(1, len(kinds), sharey=True)
    for axes, kind in zip(panels, kinds, strict=True):
        chosen = [row for row in rows if row["kind"] == kind]
        for row, colour in zip(chosen, colours, strict=False):
            means = [float(row[severity]) for severity in severities]
            axes.plot(severities, means, "o-", color=colour, markersize=3, label=row["corruption"])
        axes.set_title(kind)
        axes.set_xlabel("severity")
        axes.legend(fontsize="small")
    panels[0].set_ylabel("mean rmd")


FIGURES: dict[str, tuple[Callable[[Figure, Rows], None], float, float]] = {
    "error_rate": (error_rate, 6.5, 2.8),
    "probes": (probes, 8.5, 4.2),
    "corruptions": (corruptions, 9, 3),
    "eight_networks": (eight_networks, 8, 2.8),
    "streamed": (streamed, 8, 3),
}


def draw(folder: Path) -> None:
    """Writes one SVG for each CSV file into the folder."""
    for name, (plot, width, height) in FIGURES.items():
        with (HERE / f"{name}.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        with mpl.rc_context(STYLE):
            figure = Figure(figsize=(width, height))
            plot(figure, rows)
            figure.savefig(folder / f"{name}.svg", metadata={"Date": None, "Creator": None})


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
