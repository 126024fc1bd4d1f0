"""Markdown tables of the page, whose best numbers are bold."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

NOT_RUN = "not run"
NONE = "-"


@dataclass(frozen=True)
class Number:
    """A number of a table.

    Attributes:
        value: Decides which of several is best.
        text: What the table shows.
    """

    value: float
    text: str


Shown = Number | str
"""A number, or words where there is none."""


def with_error(value: float, error: float) -> Number:
    """A value with the half-width of its interval."""
    return Number(value, f"{value:.4f} ± {error:.4f}")


def with_interval(values: Mapping[str, float], key: str) -> Number:
    """A value with its interval."""
    return Number(values[key], f"{values[key]:.3f} ({values['low']:.3f} to {values['high']:.3f})")


def bold_best(cells: Sequence[Shown]) -> list[str]:
    """The texts of some cells, bold where they read as that of the largest number does."""
    numbers = [cell for cell in cells if isinstance(cell, Number)]
    if not numbers:
        return [str(cell) for cell in cells]
    best = max(numbers, key=lambda cell: cell.value).text
    texts = [cell.text if isinstance(cell, Number) else cell for cell in cells]
    return [f"**{text}**" if text == best else text for text in texts]


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table in Markdown."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def best_in_columns(
    header: Sequence[str], names: Sequence[str], columns: Sequence[Sequence[Shown]]
) -> str:
    """A table whose columns each have their best number bold; a row without numbers is left out."""
    texts = [bold_best(column) for column in columns]
    rows = [
        [name, *(column[place] for column in texts)]
        for place, name in enumerate(names)
        if any(isinstance(column[place], Number) for column in columns)
    ]
    return markdown(header, rows)


def best_in_rows(header: Sequence[str], rows: Mapping[str, Sequence[Shown]]) -> str:
    """A table whose rows each have their best number bold."""
    return markdown(header, [[name, *bold_best(cells)] for name, cells in rows.items()])
