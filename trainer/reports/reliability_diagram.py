"""Reliability diagrams: accuracy and number of predictions by confidence.

The bins are those of the ECE: of equal width, closed on the right.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from torch import Tensor

from difficulty_service.errors import MetricError
from difficulty_service.files.atomic_file import replacing
from trainer.metrics.calibration import (
    NUM_BINS,
    ReliabilityBins,
    equal_mass_bins,
    equal_width_bins,
)
from trainer.metrics.predictions import confidence_and_correct

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS_PER_ROW = 4
FORMATS = {".png": "png", ".svg": "svg"}
ACCURACY_COLOUR, GAP_COLOUR = "#3b6fb6", "#d1495b"


def draw_reliability(
    predictions: Mapping[str, tuple[Tensor, Tensor]], path: Path, num_bins: int = NUM_BINS
) -> None:
    """Draws one panel per classifier: accuracy by confidence, above a histogram of confidence.

    A solid bar is the accuracy of a bin; a hatched bar reaches from there to its mean confidence,
    a gap that is 0 in a calibrated classifier. ECE and adaptive ECE are in the title.

    Args:
        predictions: Logits (samples, classes) and targets (samples,) by name.
        path: The .png or .svg file to write; an existing one is replaced.
        num_bins: Number of bins, of equal width for the bars and of equal mass for the adaptive
            ECE.

    Raises:
        MetricError: There is nothing to draw, the file is of another type, or the predictions are
            invalid.
    """
    if not predictions or path.suffix.lower() not in FORMATS:
        raise MetricError(
            f"{len(predictions)} classifiers to draw into {path}",
            f"give at least one, and a file that ends in {' or '.join(FORMATS)}",
        )
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    across = min(len(predictions), PANELS_PER_ROW)
    down = math.ceil(len(predictions) / across)
    figure = Figure(figsize=(3.2 * across, 4.2 * down), layout="constrained")
    grid = figure.add_gridspec(2 * down, across, height_ratios=[3, 1] * down)
    for number, (name, (logits, targets)) in enumerate(predictions.items()):
        row, column = divmod(number, across)
        upper = figure.add_subplot(grid[2 * row, column])
        lower = figure.add_subplot(grid[2 * row + 1, column], sharex=upper)
        confidence, correct = confidence_and_correct(logits, targets)
        bins = equal_width_bins(confidence, correct, num_bins)
        adaptive_ece = equal_mass_bins(confidence, correct, num_bins).mean_gap
        title = f"{name}\nECE {bins.mean_gap:.2%}, adaptive ECE {adaptive_ece:.2%}"
        # A dollar sign in a name must not start a formula.
        upper.set_title(title, fontsize="small", parse_math=False)
        _draw_accuracies(upper, bins)
        _draw_counts(lower, bins)
    # With a fixed salt and no date, the same predictions give the same file.
    with rc_context({"svg.hashsalt": "reliability"}), replacing(path) as temporary:
        kind = FORMATS[path.suffix.lower()]
        figure.savefig(
            temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )


def _draw_accuracies(axes: "Axes", bins: ReliabilityBins) -> None:
    widths, used = bins.upper - bins.lower, bins.counts > 0
    axes.bar(bins.lower, bins.accuracies, widths, align="edge", color=ACCURACY_COLOUR, ec="white")
    axes.bar(
        bins.lower[used],
        bins.gaps[used],
        widths[used],
        bottom=bins.accuracies[used],
        align="edge",
        facecolor="none",
        edgecolor=GAP_COLOUR,
        hatch="///",
    )
    axes.plot([0, 1], [0, 1], color="grey", linestyle="--", linewidth=1)
    axes.set(xlim=(0, 1), ylim=(0, 1), ylabel="accuracy")
    axes.tick_params(labelbottom=False)


def _draw_counts(axes: "Axes", bins: ReliabilityBins) -> None:
    shares = bins.counts / bins.counts.sum()
    axes.bar(bins.lower, shares, bins.upper - bins.lower, align="edge", color="grey")
    axes.set(ylim=(0, 1), xlabel="confidence", ylabel="share")
