"""Curves of several runs by every score: ROC, accuracy over rejection, risk over coverage.

A panel for each score as trained, and one at the temperature of least NLL where that changes the
order of the samples. A line is the mean over the seeds of a run, a band reaches from the lowest to
the highest.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer import run_folder
from trainer.evaluation.prediction_file import read_distances
from trainer.evaluation.record import MISCLASSIFICATION, NamedCurve, read_curves
from trainer.metrics.mahalanobis import FEATURE_SCORES
from trainer.metrics.predictions import confidence_and_correct
from trainer.metrics.ranking import RocCurve, roc_curve
from trainer.metrics.selective import CERTAINTIES, accuracy_over_rejection, certainty_and_correct
from trainer.reports.comparison import ComparedRun, RunComparison, seed_predictions
from trainer.reports.diagrams import COVERAGES, FORMATS, line_of, save_picture, style, title_of
from trainer.reports.other_data import SCORE_TITLES

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

SCORES = (*CERTAINTIES, FEATURE_SCORES[0])
DRAWN_STAGES = {"raw": "as trained", "temperature_nll": "temperature by NLL"}
RATES = np.arange(201) / 200
"""False positive rates at which ROC curves of seeds are averaged."""

Values = NDArray[np.float64]


@dataclass(frozen=True)
class Panel:
    """One diagram of a picture: for each run that has one, a curve of every seed.

    Attributes:
        curves: Values at the positions that all panels share, by run. Shape (seeds, points).
    """

    title: str
    curves: Mapping[str, Values]


@dataclass(frozen=True)
class _OfSeed:
    """The curves of a seed by one score; no ROC curve without right or without wrong predictions.

    Attributes:
        accuracies: At each of COVERAGES. Shape (points,).
        roc: True positive rates at each of RATES. Shape (points,).
    """

    accuracies: Values
    roc: Values | None


@dataclass(frozen=True)
class CurvesOfRuns:
    """The curves of a comparison."""

    comparison: RunComparison

    @cached_property
    def accuracies(self) -> Sequence[Panel]:
        """Accuracy of the most certain samples, at each of COVERAGES."""
        return self._panels(lambda *key: [each.accuracies for each in self._computed.get(key, [])])

    @cached_property
    def rocs(self) -> Mapping[str, Sequence[Panel]]:
        """True positive rate at each of RATES, of errors and of each OOD dataset that has some."""
        panels = {MISCLASSIFICATION: self._panels(self._error_rocs)}
        for name in self.comparison.ood_names:
            panels[name] = self._panels(partial(self._ood_rocs, name))
        return {
            name: [replace(each, title=f"{title_of(name)}: {each.title}") for each in group]
            for name, group in panels.items()
            if group
        }

    def _error_rocs(self, *key: str) -> list[Values]:
        """Curves of misclassification detection, of each seed that has one."""
        return [each.roc for each in self._computed.get(key, []) if each.roc is not None]

    def _ood_rocs(self, name: str, run: str, stage: str, by: str) -> list[Values]:
        """Curves of the detection of an OOD dataset, of each seed that has one."""
        return [
            _at_rates(each.curve)
            for each in self._saved[run]
            if (each.detection, each.stage, each.by) == (name, stage, by)
        ]

    @cached_property
    def _computed(self) -> Mapping[tuple[str, ...], Sequence[_OfSeed]]:
        """The curves of all seeds by run, stage and score; predictions are read once a stage."""
        computed: dict[tuple[str, ...], list[_OfSeed]] = {}
        for run in self.comparison.runs:
            for seed, record in run.records.items():
                for stage in DRAWN_STAGES.keys() & record.keys():
                    for by, samples in _certainties(run, seed, stage):
                        computed.setdefault((run.name, stage, by), []).append(_curves_of(*samples))
        return computed

    @cached_property
    def _saved(self) -> Mapping[str, Sequence[NamedCurve]]:
        """The curves that evaluations have written, by run."""
        paths = {
            run.name: [
                run_folder.seed_folder(run.folder, seed) / run_folder.ROC for seed in run.records
            ]
            for run in self.comparison.runs
        }
        return {
            name: [curve for path in each if path.is_file() for curve in read_curves(path)]
            for name, each in paths.items()
        }

    def _panels(self, curves: Callable[[str, str, str], list[Values]]) -> list[Panel]:
        """A panel for each score and stage that any run has curves of."""
        panels = []
        for by in SCORES:
            for stage, title in DRAWN_STAGES.items():
                found = {run.name: curves(run.name, stage, by) for run in self.comparison.runs}
                stacked = {name: np.stack(each) for name, each in found.items() if each}
                if stacked:
                    panels.append(Panel(f"{SCORE_TITLES[by]}, {title}", stacked))
        return panels


def has_distances(comparison: RunComparison) -> bool:
    """Whether any seed has the Mahalanobis distances of its test samples."""
    return any(
        (run_folder.seed_folder(run.folder, seed) / run_folder.DISTANCES).is_file()
        for run in comparison.runs
        for seed in run.records
    )


def _certainties(
    run: ComparedRun, seed: int, stage: str
) -> Iterator[tuple[str, tuple[Tensor, Tensor]]]:
    """Certainty and correctness of the samples of a seed, by each score that it has."""
    saved = seed_predictions(run, seed, stage)
    for by in CERTAINTIES:
        yield by, certainty_and_correct(saved.logits, saved.targets, by)
    path = run_folder.seed_folder(run.folder, seed) / run_folder.DISTANCES
    distances = read_distances(path) if stage == "raw" else {}
    if distances and all(sample in distances for sample in saved.sample_ids):
        certainty = torch.tensor([-distances[sample] for sample in saved.sample_ids])
        yield FEATURE_SCORES[0], (certainty, confidence_and_correct(saved.logits, saved.targets)[1])


def _curves_of(certainty: Tensor, correct: Tensor) -> _OfSeed:
    rejected = (1 - COVERAGES).tolist()
    some_of_both = 0 < int(correct.sum()) < len(correct)
    return _OfSeed(
        accuracy_over_rejection(certainty, correct, rejected).accuracies,
        _at_rates(roc_curve(certainty, correct)) if some_of_both else None,
    )


def _at_rates(curve: RocCurve) -> Values:
    return np.interp(RATES, curve.false_positive_rates, curve.true_positive_rates)


@dataclass(frozen=True)
class Axis:
    """The positions of all curves of a picture, in percent, and the labels of both axes."""

    positions: Values
    label: str
    values: str


COVERAGE = Axis(100 * COVERAGES, "coverage: most certain samples kept (%)", "error rate (%)")
REJECTION = Axis(100 * (1 - COVERAGES), "least certain samples rejected (%)", "accuracy (%)")
FALSE_POSITIVES = Axis(100 * RATES, "false positive rate (%)", "true positive rate (%)")

ACROSS = 4
TICKS = (0, 25, 50, 75, 100)


def draw_panels(
    groups: Sequence[Sequence[Panel]], axis: Axis, names: Sequence[str], path: Path
) -> None:
    """Draws a picture of panels in all formats, each group from a new row on.

    The names are those of all runs, in the order of their lines.
    """
    from matplotlib.figure import Figure

    across = min(max(map(len, groups)), ACROSS)
    rows = [
        group[start : start + across] for group in groups for start in range(0, len(group), across)
    ]
    with style():
        above = 0.45 + 0.2 * len(names)  # inches of the legend and the titles
        width, height = 2.9 * across + 0.7, 2.6 * len(rows) + above + 0.4
        figure = Figure(figsize=(width, height))
        # A layout that is measured takes longer than everything else.
        figure.subplots_adjust(
            left=0.7 / width,
            right=1 - 0.1 / width,
            bottom=0.6 / height,
            top=1 - above / height,
            wspace=0.08,
            hspace=0.35,
        )
        grid = figure.subplots(len(rows), across, sharex=True, sharey=True, squeeze=False)
        handles: dict[str, Line2D] = {}
        for cells, row in zip(grid, rows, strict=True):
            for axes, panel in zip(cells, row, strict=False):
                handles |= _draw_panel(axes, panel, axis, names)
            for axes in cells[len(row) :]:
                axes.set_axis_off()
        for axes in grid[-2:, len(rows[-1]) :].flatten():
            axes.tick_params(labelbottom=True)  # no panel is below
        grid[0, 0].set_xticks(TICKS)
        figure.supxlabel(axis.label, fontsize="medium")
        figure.supylabel(axis.values, fontsize="medium")
        legend = figure.legend(
            list(handles.values()), list(handles), loc="upper center", fontsize="small"
        )
        for text in legend.get_texts():
            text.set_parse_math(False)
        for suffix in FORMATS:
            save_picture(figure, path.with_name(f"{path.name}{suffix}"))


def _draw_panel(
    axes: "Axes", panel: Panel, axis: Axis, names: Sequence[str]
) -> dict[str, "Line2D"]:
    """Draws the lines of a panel, which it returns by run."""
    lines = {}
    for name, values in panel.curves.items():
        line, percent = line_of(names.index(name)), 100 * values
        (lines[name],) = axes.plot(axis.positions, percent.mean(0), **line)
        if len(values) > 1:
            band = {"color": line["color"], "alpha": 0.15, "linewidth": 0}
            axes.fill_between(axis.positions, percent.min(0), percent.max(0), **band)
    # A dollar sign in a name must not start a formula.
    axes.set_title(panel.title.replace(": ", ":\n"), fontsize="small", parse_math=False)
    return lines
