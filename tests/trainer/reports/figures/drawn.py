"""Reads what the tests of figures share."""

from pathlib import Path

from trainer.evaluation.prediction_file import Predictions, read_predictions
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure


def figures_in(drawn: Drawn) -> dict[str, Figure]:
    return {each.name: each for each in drawn if isinstance(each, Figure)}


def reasons_in(drawn: Drawn) -> list[str]:
    return [f"{each.name}: {each.reason}" for each in drawn if isinstance(each, LeftOutOfFigure)]


def predictions_of(run: Path, seed: int) -> Predictions:
    return read_predictions(run / f"seed-{seed}" / "test.npz")
