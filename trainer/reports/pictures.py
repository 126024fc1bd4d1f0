"""What all diagrams of runs share: colours, line styles and the files that they are written to."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from difficulty_service.errors import MetricError
from difficulty_service.files.atomic_file import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FORMATS = {".png": "png", ".svg": "svg"}

BLUE, ORANGE, GREY, LIGHT_BLUE = "#0072b2", "#d55e00", "#767676", "#a6cee3"
COLOURS = (BLUE, ORANGE, "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
"""Colours of Okabe and Ito, which can be told apart with any colour vision."""

LINE_STYLES = ("-", "--", "-.", ":")
"""Line styles of further runs once all colours are in use."""

STYLE = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "font.size": 9,
    "grid.color": "#e3e3e3",
    "hatch.linewidth": 0.8,
    "legend.frameon": False,
    # With a fixed salt, the same numbers give the same file.
    "svg.hashsalt": "difficulty",
}


@contextmanager
def style() -> Iterator[None]:
    """Draws and saves the figures made inside in the style of the project."""
    from matplotlib import rc_context

    settings: Any = STYLE
    with rc_context(settings):
        yield


def line_of(number: int) -> dict[str, Any]:
    """Colour and style of the line of a run, by its position in the comparison."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)],
    }


def require_picture(path: Path, num_drawn: int, noun: str) -> None:
    """Refuses to draw nothing, or into a file of another type.

    Args:
        path: File to write.
        num_drawn: Number of things to draw.
        noun: What these are, in the plural.

    Raises:
        MetricError: There is nothing to draw, or the name ends neither in .png nor in .svg.
    """
    if not num_drawn or path.suffix.lower() not in FORMATS:
        raise MetricError(
            f"{num_drawn} {noun} to draw into {path}",
            f"give at least one, and a file that ends in {' or '.join(FORMATS)}",
        )


def save_picture(figure: "Figure", path: Path) -> None:
    """Writes a figure atomically; the same figure gives the same bytes."""
    kind = FORMATS[path.suffix.lower()]
    with replacing(path) as temporary:
        figure.savefig(
            temporary, format=kind, dpi=150, metadata={"Date": None} if kind == "svg" else None
        )
