"""Reads what the tests of figures share."""

from pathlib import Path

from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure, lines_of


def figures_in(drawn: Drawn) -> dict[str, Figure]:
    return {each.name: each for each in drawn if isinstance(each, Figure)}


def reasons_in(drawn: Drawn) -> list[str]:
    return [
        line for each in drawn if isinstance(each, LeftOutOfFigure) for line in lines_of([each])
    ]


def predictions_of(run: Path, seed: int) -> Predictions:
    return read_predictions(run / f"seed-{seed}" / "test.npz")
