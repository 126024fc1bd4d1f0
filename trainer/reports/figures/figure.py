"""A figure before it is drawn, what cannot be drawn, and the diagram of lines of most figures."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from trainer.reports.diagrams import line_of, save_picture, style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Cell = str | int | float | None
Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Figure:
    """A figure with its numbers, by the name of its files.

    It corresponds to figures of papers. The rows have the same keys; None is an empty cell.
    """

    name: str
    caption: str
    paper: str
    rows: Sequence[Row]
    draw: Callable[[Path], None]


@dataclass(frozen=True)
class LeftOutOfFigure:
    """A figure, or its part of one run or seed, that the data do not allow.

    Attributes:
        name: The figure.
        reason: What is missing, without the name of the run.
        remedy: How to get it, a clause; empty where nothing can be done.
        run: Name of the run; empty where the reason concerns no single run.
        seed: Seed of the run; None for the whole run.
    """

    name: str
    reason: str
    remedy: str = ""
    run: str = ""
    seed: int | None = None


def lines_of(parts: Sequence[LeftOutOfFigure]) -> Sequence[str]:
    """A line for each reason: its figures, the runs and seeds that it concerns, and the remedy."""
    groups: dict[tuple[str, str], list[LeftOutOfFigure]] = defaultdict(list)
    for part in parts:
        groups[part.reason, part.remedy].append(part)
    lines = []
    for (reason, remedy), each in groups.items():
        names = ", ".join(dict.fromkeys(part.name for part in each))
        where = "; ".join(_runs_with_seeds(each))
        lines.append(
            f"{names}: {reason}"
            + (f" ({where})" if where else "")
            + (f"; {remedy}" if remedy else "")
        )
    return lines


def _runs_with_seeds(parts: Sequence[LeftOutOfFigure]) -> Sequence[str]:
    seeds: dict[str, list[int]] = {}
    for part in parts:
        if part.run:
            own = seeds.setdefault(part.run, [])
            if part.seed is not None and part.seed not in own:
                own.append(part.seed)
    return [
        f"{run}: seed{'s' * (len(own) > 1)} {', '.join(map(str, own))}" if own else run
        for run, own in seeds.items()
    ]


Drawn = Sequence[Figure | LeftOutOfFigure]


PANELS_PER_ROW = 2
LONGEST_LIST = 6
"""Number of names up to which the legend is one column."""


def draw_lines(
    rows: Sequence[Row], over: tuple[str, str], panels: Mapping[str, str], path: Path
) -> None:
    """Draws columns of a table, those with labels in `panels`, over another one and its label.

    A line, named by the cell "run", is the mean over the seeds that have a value there, and a band
    reaches from the lowest to the highest of several.
    """
    from matplotlib.figure import Figure as Canvas
    from matplotlib.ticker import MaxNLocator

    names = list(dict.fromkeys(str(row["run"]) for row in rows))
    across = min(len(panels), PANELS_PER_ROW)
    down = -(-len(panels) // across)
    columns = 1 if len(names) <= LONGEST_LIST else 4
    height = 3 * down + 0.2 * (len(names) // columns + 1)
    with style():
        figure = Canvas(figsize=(4.4 * across if across > 1 else 6.4, height), layout="constrained")
        for number, (column, label) in enumerate(panels.items()):
            axes = figure.add_subplot(down, across, number + 1)
            for place, name in enumerate(names):
                own = [row for row in rows if row["run"] == name]
                _draw_line(axes, own, (over[0], column), place, name)
            axes.set(xlabel=over[1], ylabel=label)
            if all(isinstance(row[over[0]], int) for row in rows):
                axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        entries = figure.axes[0].get_legend_handles_labels()
        legend = figure.legend(
            *entries, loc="outside lower center", ncols=columns, fontsize="small"
        )
        # Names may hold a dollar sign, which must not start a formula.
        for text in legend.get_texts():
            text.set_parse_math(False)
        save_picture(figure, path)


def _draw_line(
    axes: "Axes", rows: Sequence[Row], columns: tuple[str, str], place: int, name: str
) -> None:
    values: dict[float, list[float]] = defaultdict(list)
    for row in rows:
        position, value = (row[column] for column in columns)
        if position is not None and value is not None:
            values[float(position)].append(float(value))
    positions = sorted(values)
    means = [float(np.mean(values[each])) for each in positions]
    line = line_of(place)
    # A run of one epoch is a point, which no line shows.
    axes.plot(positions, means, label=name, marker="o" if len(positions) == 1 else None, **line)
    if any(len(each) > 1 for each in values.values()):
        low, high = ([pick(values[each]) for each in positions] for pick in (min, max))
        axes.fill_between(positions, low, high, color=line["color"], alpha=0.15, linewidth=0)
