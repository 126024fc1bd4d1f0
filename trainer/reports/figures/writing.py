"""Writes figures, their numbers, and the page that lists them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from difficulty_service.base.errors import TrainingError
from difficulty_service.base.files import replacing
from trainer.reports.figures.epochs import epoch_figures, gamma_figures
from trainer.reports.figures.evaluations import (
    corruption_figures,
    interval_figures,
    roc_figures,
)
from trainer.reports.figures.figure import Drawn, Figure, LeftOutOfFigure, lines_of
from trainer.reports.figures.predictions import gradient_figures, prediction_figures
from trainer.reports.figures.scores import error_figures, severity_figures, sheet_figures
from trainer.reports.figures.sources import Sources
from trainer.run_folder import write_csv

INDEX = "index.md"

FAMILIES: Sequence[Callable[[Sources], Drawn]] = (
    prediction_figures,
    interval_figures,
    gradient_figures,
    epoch_figures,
    gamma_figures,
    error_figures,
    severity_figures,
    sheet_figures,
    corruption_figures,
    roc_figures,
)
"""What draws each family of figures, in the order in which they are listed."""


@dataclass(frozen=True)
class Written:
    """What was written."""

    figures: tuple[Figure, ...]
    left_out: tuple[LeftOutOfFigure, ...]
    index: Path


def write_figures(sources: Sources, out: Path, kind: str) -> Written:
    """Draws every figure that the sources allow into a folder, with its numbers as CSV."""
    parts = [part for family in FAMILIES for part in family(sources)]
    figures = tuple(part for part in parts if isinstance(part, Figure))
    left_out = tuple(part for part in parts if isinstance(part, LeftOutOfFigure))
    if not figures:
        reasons = "; ".join(lines_of(left_out))
        raise TrainingError(f"no figure can be drawn: {reasons}")
    out.mkdir(parents=True, exist_ok=True)
    for each in figures:
        each.draw(out / f"{each.name}.{kind}")
        write_csv(out / f"{each.name}.csv", each.rows)
    index = out / INDEX
    with replacing(index) as temporary:
        temporary.write_text(_page(figures, left_out, kind))
    return Written(figures, left_out, index)


def _page(figures: Sequence[Figure], left_out: Sequence[LeftOutOfFigure], kind: str) -> str:
    shown = [
        f"## {each.name}\n\n![{each.name}]({each.name}.{kind})\n\n{each.caption}\n\n"
        f"Corresponds to: {each.paper}. Numbers: [{each.name}.csv]({each.name}.csv).\n"
        for each in figures
    ]
    parts = ["# Figures\n", *shown]
    if left_out:
        reasons = "\n".join(f"- {line}." for line in lines_of(left_out))
        parts.append(f"## Left out\n\n{reasons}\n")
    return "\n".join(parts)
