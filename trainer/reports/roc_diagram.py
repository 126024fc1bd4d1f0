"""Diagrams of ROC curves: a panel per detection, a colour per score, a line per seed."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainer.evaluation.roc_file import MISCLASSIFICATION, NamedCurve
from trainer.reports.pictures import COLOURS, FORMATS, GREY, save_picture, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PANELS_PER_ROW = 3
SCORES = ("msp", "entropy", "max_logit")
"""Scores in the order of their colours."""

LONGEST_LOCATION = 40
"""Number of characters of a location that a title shows, its last ones."""

TITLES = {"msp": "MSP", "entropy": "entropy", "max_logit": "max logit"}


def draw_roc(curves: Sequence[NamedCurve], path: Path) -> None:
    """Draws the ROC curves of the model as trained, without temperature scaling.

    Args:
        curves: Curves of all seeds, at least one as trained.
        path: Path without an ending; the .png and .svg files there are replaced.
    """
    with style():
        figure = _draw(curves)
        for suffix in FORMATS:
            save_picture(figure, path.with_suffix(suffix))


def _draw(curves: Sequence[NamedCurve]) -> "Figure":
    from matplotlib.figure import Figure

    raw = [each for each in curves if each.stage == "raw"]
    detections = list(dict.fromkeys(each.detection for each in raw))
    across = min(len(detections), PANELS_PER_ROW)
    down = math.ceil(len(detections) / across)
    figure = Figure(figsize=(4 * across, 4.2 * down), layout="constrained")
    for number, detection in enumerate(detections):
        axes = figure.add_subplot(down, across, number + 1)
        shown = set[str]()
        for each in (curve for curve in raw if curve.detection == detection):
            axes.plot(
                each.curve.false_positive_rates,
                each.curve.true_positive_rates,
                color=COLOURS[SCORES.index(each.by)],
                linewidth=1.2,
                alpha=0.8,
                label=None if each.by in shown else TITLES[each.by],
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
