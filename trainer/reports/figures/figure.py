"""A figure before it is drawn, and what cannot be drawn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

Cell = str | int | float | None
Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Figure:
    """A figure with its numbers.

    Attributes:
        name: Name of its files, without an ending.
        caption: What it shows, in one or two sentences.
        paper: The figures of the papers that it corresponds to.
        rows: The numbers that it shows, with the same keys in each row; None is an empty cell.
        draw: Draws it into a .png or .svg file.
    """

    name: str
    caption: str
    paper: str
    rows: Sequence[Row]
    draw: Callable[[Path], None]


@dataclass(frozen=True)
class LeftOut:
    """A figure, or a part of one, that the data do not allow."""

    name: str
    reason: str


Drawn = Sequence[Figure | LeftOut]
