"""Square windows that slide over an image, and which of them lie beside all boxes."""

import math

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]

SMALLEST, LARGEST = 0.1, 0.9
"""Quantiles of the longer sides of boxes between which the sides of windows are."""

RATIO = 2.0
"""Largest ratio of the sides that windows of one size stand for."""

FEWEST_PIXELS = 8
"""Smallest side of a window."""

STEP = 0.5
"""Step of a window, as a share of its side."""

BESIDE = 0.2
"""Share of a window that a box may cover, and of a box that a window may, beside it."""


def window_sides(longer: Numbers) -> Numbers:
    """Sides of windows that suit boxes: one for each doubling of their size, ascending.

    Args:
        longer: Longer sides of the boxes, at least one. Shape (boxes,).
    """
    low, high = np.maximum(np.quantile(longer, [SMALLEST, LARGEST]), FEWEST_PIXELS)
    number = max(1, math.ceil(math.log(high / low, RATIO)))
    middles = (np.arange(number) + 0.5) / number
    sides: Numbers = np.round(low * (high / low) ** middles)
    return sides


def slide(width: float, height: float, sides: Numbers) -> Numbers:
    """Windows that overlap by half or more and cover an image; none larger than it.

    Shape (windows, 4): left, top, right and bottom.
    """
    windows = [np.empty((0, 4))]
    for side in sides[sides <= min(width, height)].tolist():
        across, down = (_starts(length, side) for length in (width, height))
        left, top = (each.ravel() for each in np.meshgrid(across, down))
        windows.append(np.column_stack([left, top, left + side, top + side]))
    return np.concatenate(windows)


def _starts(length: float, side: float) -> Numbers:
    """Where windows begin, evenly spaced from one end to the other, at whole pixels."""
    number = 1 + math.ceil((length - side) / (STEP * side))
    last = length - side
    starts: Numbers = np.minimum(np.round(np.linspace(0, last, number)), last)
    return starts


def lies_beside(windows: Numbers, boxes: Numbers) -> NDArray[np.bool_]:
    """Whether each window shares next to nothing with any box.

    Args:
        windows: Shape (windows, 4).
        boxes: Shape (boxes, 4).

    Returns:
        True where no box covers more than BESIDE of the window, nor the window of a box. Shape
        (windows,).
    """
    inner = np.minimum(windows[:, None, 2:], boxes[None, :, 2:])
    inner = inner - np.maximum(windows[:, None, :2], boxes[None, :, :2])
    shared = inner.clip(0).prod(axis=2)
    areas = [np.prod(each[:, 2:] - each[:, :2], axis=1) for each in (windows, boxes)]
    touches = shared > BESIDE * np.minimum(areas[0][:, None], areas[1][None])
    beside: NDArray[np.bool_] = ~touches.any(axis=1)
    return beside
