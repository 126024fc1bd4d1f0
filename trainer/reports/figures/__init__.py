"""The figures of the papers, drawn from runs and score files: one module per family."""

from collections.abc import Callable, Mapping

from trainer.reports.figures.epochs import epoch_figures, gamma_figures
from trainer.reports.figures.figure import Drawn
from trainer.reports.figures.predictions import prediction_figures, roc_figures
from trainer.reports.figures.scores import error_figures, severity_figures, sheet_figures
from trainer.reports.figures.sources import Sources

FAMILIES: Mapping[str, Callable[[Sources], Drawn]] = {
    "predictions": prediction_figures,
    "epochs": epoch_figures,
    "gammas": gamma_figures,
    "error by difficulty": error_figures,
    "severity": severity_figures,
    "sheets": sheet_figures,
    "roc": roc_figures,
}
"""What draws each family of figures, in the order in which they are listed."""
