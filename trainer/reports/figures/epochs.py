"""Figures over the epochs of training: NLL, calibration, entropy and norms of the last layer.

AdaFocal's gamma and calibration gap of each bin over the epochs.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainer.reports.diagrams import GREY, save_picture, style
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure, Row, draw_lines
from trainer.reports.figures.sources import ADAFOCAL, Sources

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable


@dataclass(frozen=True)
class _Plan:
    """A figure of columns of the history."""

    panels: Mapping[str, str]
    caption: str
    paper: str
    missing: str


NO_VALIDATION = "it holds out no validation samples"
PLANS: Mapping[str, _Plan] = {
    "nll-and-ece-over-epochs": _Plan(
        {
            "validation_nll": "validation NLL (nats)",
            "validation_ece": "validation ECE",
            "validation_adaptive_ece": "validation adaptive ECE",
            "validation_accuracy": "validation accuracy",
        },
        "NLL, calibration errors and accuracy of the validation samples after each epoch.",
        "Mukhoti et al. (2020), figures 1c and 2a",
        NO_VALIDATION,
    ),
    "right-and-wrong-over-epochs": _Plan(
        {
            "validation_nll_right": "NLL, rightly classified",
            "validation_nll_wrong": "NLL, wrongly classified",
            "validation_entropy_right": "entropy, rightly classified",
            "validation_entropy_wrong": "entropy, wrongly classified",
        },
        "Mean NLL and entropy, in nats, of the validation samples that are classified rightly and "
        "wrongly after each epoch. A rising NLL of the wrong ones whose entropy falls is a network "
        "that grows sure of its errors.",
        "Mukhoti et al. (2020), figures 1a, 1b, 2b, 2c and 2d",
        NO_VALIDATION,
    ),
    "entropy-and-weights-over-epochs": _Plan(
        {
            "validation_entropy": "validation entropy (nats)",
            "norm_last_weights": "norm of the last layer's weights",
        },
        "Mean entropy of the predictions for validation samples, and the Euclidean norm of the "
        "weights of the last linear layer, after each epoch.",
        "Mukhoti et al. (2020), figure 2e",
        f"{NO_VALIDATION}, or its model has no linear layer",
    ),
    "gradients-over-epochs": _Plan(
        {"norm_last_gradient": "norm of the last layer's gradient"},
        "Euclidean norm of the gradient of the last linear layer's weights, before it is clipped, "
        'on average over the steps of each epoch. With `training.reduction = "sum"` it grows with '
        "the size of a batch.",
        "Mukhoti et al. (2020), figures 3b to 3d, of which gradients-of-samples has single samples",
        "its model has no linear layer, or that layer is not trained",
    ),
}


def epoch_figures(sources: Sources) -> Drawn:
    """The figures of PLANS, of the runs that have any of their columns."""
    return [each for name in PLANS for each in _figure(sources, name)]


def _figure(sources: Sources, name: str) -> Drawn:
    plan = PLANS[name]
    rows = [
        {"run": run.name, "seed": seed.seed, "epoch": record["epoch"]}
        | {column: record.get(column) for column in plan.panels}
        for run, seed in sources.seeds()
        for record in seed.history
    ]
    found: list[Figure | LeftOutOfFigure] = []
    kept = []
    for run in sources.runs:
        own = [row for row in rows if row["run"] == run.name]
        lacking = [column for column in plan.panels if all(row[column] is None for row in own)]
        if not own:
            found.append(LeftOutOfFigure(name, "no epoch is saved", run=run.name))
        elif lacking:
            names = ", ".join(lacking)
            found.append(LeftOutOfFigure(name, f"no {names}", plan.missing, run.name))
        if len(lacking) < len(plan.panels):
            kept += own
    if not sources.runs:
        return [LeftOutOfFigure(name, "no run is given")]
    panels = {
        column: label
        for column, label in plan.panels.items()
        if any(row[column] is not None for row in kept)
    }
    if panels:
        draw = partial(draw_lines, kept, ("epoch", "epoch"), panels)
        found.append(Figure(name, plan.caption, plan.paper, kept, draw))
    return found


NAME = "gammas-over-epochs"
PANELS: Mapping[str, str] = {"gamma": "gamma of the next epoch", "gap": "confidence - accuracy"}


def gamma_figures(sources: Sources) -> Drawn:
    """The figure NAME, of the runs that were trained with AdaFocal."""
    rows: list[Row] = [
        {
            "run": run.name,
            "seed": seed.seed,
            "epoch": int(row["epoch"]),
            "bin": int(row["bin"]),
            "gamma": float(row["gamma"]),
            "gap": float(row["gap"]),
        }
        for run, seed in sources.seeds()
        for row in seed.adafocal
    ]
    drawn = {row["run"] for row in rows}
    found: list[Figure | LeftOutOfFigure] = [
        LeftOutOfFigure(
            NAME, f"no {ADAFOCAL}, which runs with loss.name = 'adafocal' write", run=run.name
        )
        for run in sources.runs
        if run.name not in drawn
    ]
    if not sources.runs:
        return [LeftOutOfFigure(NAME, "no run is given")]
    if rows:
        caption = (
            "Gamma of each bin of validation confidence after each epoch, and the gap between mean "
            "confidence and accuracy that it follows; means over the seeds. Bin 0 is the least "
            "confident."
        )
        paper = "Ghosh et al. (2022), gammas and calibration gaps of the bins over the epochs"
        found.append(Figure(NAME, caption, paper, rows, partial(_draw, rows)))
    return found


def _draw(rows: Sequence[Row], path: Path) -> None:
    from matplotlib.cm import ScalarMappable
    from matplotlib.colors import Normalize
    from matplotlib.figure import Figure as Canvas

    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    with style():
        figure = Canvas(figsize=(8.4, 3 * len(names)), layout="constrained")
        largest = max(int(row["bin"] or 0) for row in rows)
        colours = ScalarMappable(Normalize(0, max(largest, 1)), "viridis")
        grid = figure.subplots(len(names), len(PANELS), squeeze=False)
        for name, panels in zip(names, grid, strict=True):
            own = [row for row in rows if row["run"] == name]
            for axes, (column, label) in zip(panels, PANELS.items(), strict=True):
                _draw_bins(axes, own, column, colours)
                axes.set_title(name, fontsize="small", parse_math=False)
                axes.set(xlabel="epoch", ylabel=label)
        figure.colorbar(colours, ax=grid, label="bin, least to most confident")
        save_picture(figure, path)


def _draw_bins(axes: "Axes", rows: Sequence[Row], column: str, colours: "ScalarMappable") -> None:
    bins: dict[int, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        bins[int(row["bin"] or 0)][int(row["epoch"] or 0)].append(float(row[column] or 0))
    axes.axhline(0, color=GREY, linewidth=0.8)
    for number, values in sorted(bins.items()):
        epochs = sorted(values)
        means = [float(np.mean(values[each])) for each in epochs]
        marker = "o" if len(epochs) == 1 else None
        (colour,) = colours.to_rgba(np.array([number]))
        axes.plot(epochs, means, color=colour, linewidth=1.2, marker=marker)
