"""Histograms of the difficulty of the samples and of the weights that a run made from it."""

import hashlib
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from difficulty_service.errors import ScoreFileError
from difficulty_service.score_file import read_scores
from trainer.reports.pictures import BLUE, ORANGE, require_picture, save_picture, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NUM_BINS = 50
OUTERMOST = (0.1, 99.9)  # percentiles of the scores shown; a few extreme scores hide the others
NAME_WIDTH = 70


@dataclass(frozen=True)
class WeightsOfRun:
    """What a run's weights were made from.

    Attributes:
        distributions: Distribution of the weights of each seed, as in `weights.json`.
        scores: Where the scores are from, as in `objective.json`.
    """

    distributions: Sequence[Mapping[str, Any]]
    scores: Mapping[str, Any]


def draw_weights(runs: Mapping[str, WeightsOfRun], path: Path) -> None:
    """Draws a row for each: a histogram of the scores beside one of the weights made from them.

    The scores are all those of the file, the weights those of the training samples, on average over
    the seeds. Where the file is no longer there or has other contents, the row says so instead.

    Args:
        runs: Weights made from scores, by the names of the runs.
        path: The .png or .svg file to write; an existing one is replaced.

    Raises:
        MetricError: There is nothing to draw, or the file is of another type.
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
    axes.hist(scores.clip(low, high), NUM_BINS, color=BLUE)


def _recorded_scores(source: Mapping[str, Any]) -> NDArray[np.float64] | str:
    """The finite scores of a file, or why there are none."""
    path = Path(source["file"])
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if digest != source["sha256"]:
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
