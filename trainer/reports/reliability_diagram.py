"""Reliability diagrams: accuracy and number of predictions by confidence.

The bins are those of the ECE: of equal width, closed on the right.
"""

import math
import statistics
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainer.metrics.calibration import (
    NUM_BINS,
    ReliabilityBins,
    equal_mass_bins,
    equal_width_bins,
)
from trainer.metrics.predictions import confidence_and_correct
from trainer.reports.pictures import (
    GREY,
    LIGHT_BLUE,
    ORANGE,
    require_picture,
    save_picture,
    style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_PER_ROW = 4
TITLE_WIDTH = 36  # characters that fit above a panel
LEGEND_COLUMNS = {1: 1, 2: 2, 3: 4, 4: 4}
"""Number of entries of the legend that fit beside each other, by the number of panels."""

SeedPredictions = Sequence[tuple[Tensor, Tensor]]
"""Logits (samples, classes) and targets (samples,) of each seed."""


def draw_reliability(
    predictions: Mapping[str, SeedPredictions], path: Path, num_bins: int = NUM_BINS
) -> None:
    """Draws one panel per classifier: accuracy by confidence, above a histogram of confidence.

    A solid bar is the accuracy of a bin; a hatched bar reaches from there to its mean confidence,
    a gap that is 0 in a calibrated classifier. Both are of the predictions of all seeds together;
    with several seeds, a point is the accuracy of one of them in that bin. The title has ECE and
    adaptive ECE, mean and standard deviation over the seeds.

    Args:
        predictions: Predictions of the seeds of each classifier, by its name.
        path: The .png or .svg file to write; an existing one is replaced.
        num_bins: Number of bins, of equal width for the bars and of equal mass for the adaptive
            ECE.

    Raises:
        MetricError: There is nothing to draw, the file is of another type, or the predictions are
            invalid.
    """
    require_picture(path, len(predictions), "classifiers")
    from matplotlib.figure import Figure

    across = min(len(predictions), PANELS_PER_ROW)
    down = math.ceil(len(predictions) / across)
    with style():
        figure = Figure(figsize=(3.2 * across, 4.2 * down + 0.5), layout="constrained")
        grid = figure.add_gridspec(2 * down, across, height_ratios=[3, 1] * down)
        for number, (name, seeds) in enumerate(predictions.items()):
            row, column = divmod(number, across)
            upper = figure.add_subplot(grid[2 * row, column])
            lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
            _draw_panel(upper, lower, name, seeds, num_bins)
        # The panel with most seeds has an entry for each kind of mark.
        entries = max((axes.get_legend_handles_labels() for axes in figure.axes), key=_num_entries)
        figure.legend(*entries, loc="outside lower center", ncols=LEGEND_COLUMNS[across])
        save_picture(figure, path)


def _num_entries(entries: tuple[list[Any], list[Any]]) -> int:
    return len(entries[1])


def _draw_panel(
    upper: "Axes", lower: "Axes", name: str, seeds: SeedPredictions, num_bins: int
) -> None:
    """Draws the accuracies of one classifier into the upper axes and the counts into the lower."""
    samples = [confidence_and_correct(logits, targets) for logits, targets in seeds]
    confidence, correct = (torch.cat(parts) for parts in zip(*samples, strict=True))
    bins = equal_width_bins(confidence, correct, num_bins)
    bins_by_seed = [equal_width_bins(*each, num_bins) for each in samples]
    errors = {
        "ECE": [each.mean_gap for each in bins_by_seed],
        "adaptive ECE": [equal_mass_bins(*each, num_bins).mean_gap for each in samples],
    }
    lines = [*textwrap.wrap(name, TITLE_WIDTH), *(_spread(*each) for each in errors.items())]
    # A dollar sign in a name must not start a formula.
    upper.set_title("\n".join(lines), fontsize="small", parse_math=False)
    _draw_accuracies(upper, bins)
    if len(seeds) > 1:
        _draw_seeds(upper, bins_by_seed)
    _draw_counts(lower, bins)


def _spread(name: str, values: Sequence[float]) -> str:
    mean = f"{name} {statistics.fmean(values):.2%}"
    return f"{mean} ± {statistics.stdev(values):.2%}" if len(values) > 1 else mean


def _draw_accuracies(axes: "Axes", bins: ReliabilityBins) -> None:
    widths, used = bins.upper - bins.lower, bins.counts > 0
    axes.plot(
        [0, 1], [0, 1], color="black", linestyle="--", linewidth=0.8, zorder=3, label="calibrated"
    )
    axes.bar(
        bins.lower,
        bins.accuracies,
        widths,
        align="edge",
        color=LIGHT_BLUE,
        edgecolor="white",
        label="accuracy",
    )
    axes.bar(
        bins.lower[used],
        bins.gaps[used],
        widths[used],
        bottom=bins.accuracies[used],
        align="edge",
        facecolor="none",
        edgecolor=ORANGE,
        hatch="///",
        label="gap to the mean confidence",
    )
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.tick_params(labelbottom=False)


def _draw_seeds(axes: "Axes", bins_by_seed: Sequence[ReliabilityBins]) -> None:
    for number, bins in enumerate(bins_by_seed):
        used = bins.counts > 0
        axes.plot(
            ((bins.lower + bins.upper) / 2)[used],
            bins.accuracies[used],
            linestyle="none",
            marker="o",
            markersize=3,
            markerfacecolor="white",
            markeredgecolor="black",
            markeredgewidth=0.6,
            clip_on=False,
            zorder=4,
            label="_" if number else "accuracy of one seed",
        )


def _draw_counts(axes: "Axes", bins: ReliabilityBins) -> None:
    shares = bins.counts / bins.counts.sum()
    axes.bar(bins.lower, shares, bins.upper - bins.lower, align="edge", color=GREY)
    axes.set(ylim=(0, 1), xlabel="confidence", ylabel="share")
