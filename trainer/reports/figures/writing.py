"""Writes figures, their numbers, and the page that lists them."""

import csv
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from difficulty_service.base.errors import TrainingError
from difficulty_service.base.files import replacing
from trainer.reports.figures import FAMILIES
from trainer.reports.figures.figure import Figure, LeftOut
from trainer.reports.figures.sources import Sources

INDEX = "index.md"


@dataclass(frozen=True)
class Written:
    """What was written."""

    figures: tuple[Figure, ...]
    left_out: tuple[LeftOut, ...]
    index: Path


def write_figures(sources: Sources, out: Path, kind: str) -> Written:
    """Draws every figure that the sources allow into a folder, with its numbers as CSV."""
    parts = [part for family in FAMILIES.values() for part in family(sources)]
    figures = tuple(part for part in parts if isinstance(part, Figure))
    left_out = tuple(part for part in parts if isinstance(part, LeftOut))
    if not figures:
        reasons = "; ".join(f"{each.name}: {each.reason}" for each in left_out)
        raise TrainingError(f"no figure can be drawn: {reasons}")
    out.mkdir(parents=True, exist_ok=True)
    for each in figures:
        each.draw(out / f"{each.name}.{kind}")
        _write_rows(out / f"{each.name}.csv", each)
    index = out / INDEX
    with replacing(index) as temporary:
        temporary.write_text(_page(figures, left_out, kind))
    return Written(figures, left_out, index)


def _write_rows(path: Path, figure: Figure) -> None:
    with replacing(path) as temporary, temporary.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(figure.rows[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(figure.rows)


def _page(figures: Sequence[Figure], left_out: Sequence[LeftOut], kind: str) -> str:
    shown = [
        f"## {each.name}\n\n![{each.name}]({each.name}.{kind})\n\n{each.caption}\n\n"
        f"Corresponds to: {each.paper}. Numbers: [{each.name}.csv]({each.name}.csv).\n"
        for each in figures
    ]
    parts = ["# Figures\n", *shown]
    if left_out:
        reasons = "\n".join(f"- {each.name}: {each.reason}." for each in left_out)
        parts.append(f"## Left out\n\n{reasons}\n")
    return "\n".join(parts)
