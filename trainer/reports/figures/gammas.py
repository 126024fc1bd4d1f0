"""AdaFocal's gamma and calibration gap of each bin over the epochs."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainer.reports.figures.figure import Drawn, Figure, LeftOut, Row
from trainer.reports.figures.sources import ADAFOCAL, Sources
from trainer.reports.pictures import GREY, save_picture, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

NAME = "gammas-over-epochs"
PANELS: Mapping[str, str] = {
    "gamma": "gamma of the next epoch",
    "gap": "confidence - accuracy",
}


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
    found: list[Figure | LeftOut] = [
        LeftOut(NAME, f"{run.name} has no {ADAFOCAL}, which runs with loss.name = 'adafocal' write")
        for run in sources.runs
        if run.name not in drawn
    ]
    if not sources.runs:
        return [LeftOut(NAME, "no run is given")]
    if rows:
        caption = (
            "Gamma of each bin of validation confidence after each epoch, and the gap between mean "
            "confidence and accuracy that it follows; means over the seeds. Bin 0 is the least "
            "confident."
        )
        paper = "Ghosh et al. (2022), gamma and calibration error of the bins over the epochs"
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
