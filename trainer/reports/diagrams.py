"""What all diagrams of runs share: colours, line styles and the files that they are written to.

Reliability diagrams: accuracy and number of predictions by confidence.

The bins are those of the ECE: of equal width, closed on the right.

Risk-coverage curves: the error rate among the samples that a classifier is most certain of.

Diagrams of ROC curves: a panel per detection, a colour per score, a line per seed.

Histograms of the difficulty of the samples and of the weights that a run made from it.
"""

import math
import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import MetricError, ScoreFileError
from difficulty_service.base.files import file_sha256, replacing
from difficulty_service.scores.file import read_scores
from trainer.evaluation.record import MISCLASSIFICATION, NamedCurve
from trainer.metrics.calibration import NUM_BINS, ReliabilityBins, equal_mass_bins, equal_width_bins
from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.selective import accuracy_over_rejection, aurc
from trainer.reports.other_data import SCORE_TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = {".png": "png", ".svg": "svg"}

BLUE, ORANGE, GREY, LIGHT_BLUE = "#0072b2", "#d55e00", "#767676", "#a6cee3"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Colours of Okabe and Ito, which can be told apart with any colour vision."""

LINE_STYLES = ("-", "--", "-.", ":")
"""Line styles of further runs once all colours are in use."""

STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "#e3e3e3",
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    # With a fixed salt, the same numbers give the same file.
    "svg.hashsalt": "difficulty",
}


@contextmanager
def style() -> Iterator[None]:
    """Draws and saves the figures made inside in the style of the project."""
    from matplotlib import rc_context

    settings: Any = STYLE
    with rc_context(settings):
        yield


def line_of(number: int) -> dict[str, Any]:
    """Colour and style of the line of a run, by its position in the comparison."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)],
    }


def require_picture(path: Path, num_drawn: int, noun: str) -> None:
    """Refuses to draw nothing, or into a file of another type."""
    if not num_drawn or path.suffix.lower() not in FORMATS:
        raise MetricError(
            f"{num_drawn} {noun} to draw into {path}",
            f"give at least one, and a file that ends in {' or '.join(FORMATS)}",
        )


def save_picture(figure: "Figure", path: Path) -> None:
    """Writes a figure atomically; the same figure gives the same bytes."""
    kind = FORMATS[path.suffix.lower()]
    with replacing(path) as temporary:
        figure.savefig(
            temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )


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
        legends = (axes.get_legend_handles_labels() for axes in figure.axes)
        entries = max(legends, key=lambda entries: len(entries[1]))
        figure.legend(*entries, loc="outside lower center", ncols=LEGEND_COLUMNS[across])
        save_picture(figure, path)


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


COVERAGES = np.arange(1, 201) / 200


def draw_risk_coverage(
    predictions: Mapping[str, Sequence[tuple[Tensor, Tensor]]], path: Path
) -> None:
    """Draws the error rate over the share of samples kept, by largest probability.

    A line is the mean over the seeds of a classifier, and a band reaches from the lowest to the
    highest of several seeds. The legend has the AURC, mean and standard deviation over the seeds.
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
    """Error rate among the most certain samples, for each of COVERAGES. Shape (points,)."""
    curve = accuracy_over_rejection(
        *confidence_and_correct(logits, targets), (1 - COVERAGES).tolist()
    )
    return 1 - curve.accuracies


def _label(name: str, seeds: Sequence[tuple[Tensor, Tensor]]) -> str:
    areas = [1000 * aurc(*confidence_and_correct(*each)) for each in seeds]
    spread = f" ± {statistics.stdev(areas):.1f}" if len(areas) > 1 else ""
    return f"{name}: AURC {statistics.fmean(areas):.1f}{spread} (x 1000)"


ROC_PANELS_PER_ROW = 3
LONGEST_LOCATION = 40
"""Number of characters of a location that a title shows, its last ones."""


def draw_roc(curves: Sequence[NamedCurve], path: Path) -> None:
    """Draws the ROC curves of the model as trained, without temperature scaling."""
    with style():
        figure = _draw(curves)
        for suffix in FORMATS:
            save_picture(figure, path.with_suffix(suffix))


def _draw(curves: Sequence[NamedCurve]) -> "Figure":
    from matplotlib.figure import Figure

    raw = [each for each in curves if each.stage == "raw"]
    detections = list(dict.fromkeys(each.detection for each in raw))
    across = min(len(detections), ROC_PANELS_PER_ROW)
    down = math.ceil(len(detections) / across)
    figure = Figure(figsize=(4 * across, 4.2 * down), layout="constrained")
    for number, detection in enumerate(detections):
        axes = figure.add_subplot(down, across, number + 1)
        shown = set[str]()
        for each in (curve for curve in raw if curve.detection == detection):
            axes.plot(
                each.curve.false_positive_rates,
                each.curve.true_positive_rates,
                **line_of(list(SCORE_TITLES).index(each.by)),
                linewidth=1.2,
                alpha=0.8,
                label=None if each.by in shown else SCORE_TITLES[each.by],
            )
            shown.add(each.by)
        axes.plot([0, 1], [0, 1], color=GREY, linestyle="--", linewidth=1, label="guessing")
        # A dollar sign in a location must not start a formula.
        axes.set_title(title_of(detection), fontsize="small", parse_math=False)
        axes.set(xlim=(0, 1), ylim=(0, 1), aspect="equal", xlabel="false positive rate")
        axes.set_ylabel("true positive rate")
        axes.legend(loc="lower right", fontsize="small")
    return figure


def title_of(detection: str) -> str:
    """What the curves of a detection are of, with the end of a long location."""
    if detection == MISCLASSIFICATION:
        return "correct predictions against wrong ones"
    shown = detection if len(detection) <= LONGEST_LOCATION else f"…{detection[-LONGEST_LOCATION:]}"
    return f"OOD samples of {shown}"


WEIGHT_BINS = 50
OUTERMOST = (0.1, 99.9)  # percentiles of the scores shown; a few extreme scores hide the others
NAME_WIDTH = 70


@dataclass(frozen=True)
class WeightsOfRun:
    """What a run's weights were made from, as in `weights.json` of seeds and `objective.json`."""

    distributions: Sequence[Mapping[str, Any]]
    scores: Mapping[str, Any]


def draw_weights(runs: Mapping[str, WeightsOfRun], path: Path) -> None:
    """Draws a row for each: a histogram of the scores beside one of the weights made from them.

    The scores are all those of the file, the weights those of the training samples, on average over
    the seeds. Where the file is no longer there or has other contents, the row says so instead.
    """
    require_picture(path, len(runs), "runs with weights by scores")
    from matplotlib.figure import Figure

    with style():
        figure = Figure(figsize=(7.6, 2.8 * len(runs)), layout="constrained")
        rows = figure.subfigures(len(runs), squeeze=False)[:, 0]
        for row, (name, run) in zip(rows, runs.items(), strict=True):
            left, right = row.subplots(1, 2)
            title = "\n".join(textwrap.wrap(name, NAME_WIDTH))
            row.suptitle(title, fontsize="medium", parse_math=False)
            _draw_scores(left, run.scores)
            _draw_weights(right, run.distributions)
        save_picture(figure, path)


def _draw_scores(axes: "Axes", source: Mapping[str, Any]) -> None:
    scores = _recorded_scores(source)
    column = source["column"]
    axes.set(xlabel=f"difficulty: {column}, larger is harder", ylabel="samples of the file")
    if isinstance(scores, str):
        axes.text(0.5, 0.5, scores, transform=axes.transAxes, ha="center", va="center", wrap=True)
        axes.set(xticks=[], yticks=[])
        return
    low, high = np.percentile(scores, OUTERMOST)
    # Extreme scores are counted in the outermost bars, so that no sample is left out.
    axes.hist(scores.clip(low, high), WEIGHT_BINS, color=BLUE)


def _recorded_scores(source: Mapping[str, Any]) -> NDArray[np.float64] | str:
    """The finite scores of a file, or why there are none."""
    path = Path(source["file"])
    try:
        if file_sha256(path) != source["sha256"]:
            return f"{path.name} has changed\nsince the run"
        table = read_scores(path, ["sample_id", source["column"]]).table
    except (OSError, ScoreFileError):
        return f"{path.name}\ncan no longer be read"
    scores = table[source["column"]].to_numpy().astype(np.float64)
    finite: NDArray[np.float64] = scores[np.isfinite(scores)]
    return finite


def _draw_weights(axes: "Axes", distributions: Sequence[Mapping[str, Any]]) -> None:
    counts = np.array([each["histogram"] for each in distributions], dtype=np.float64).mean(axis=0)
    edges = np.linspace(0, 1, len(counts) + 1)
    axes.bar(edges[:-1], counts, np.diff(edges), align="edge", color=ORANGE, edgecolor="white")
    mean = float(np.mean([each["mean"] for each in distributions]))
    axes.axvline(mean, color="black", linestyle="--", linewidth=1, label=f"mean {mean:.2f}")
    axes.set(xlim=(0, 1), xlabel="weight of the entropy term", ylabel="training samples")
    axes.legend(loc="upper right")
