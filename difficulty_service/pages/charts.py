"""Numbers of the charts: bars, outlines and ticks, which the templates draw as SVG.

Horizontal positions are percentages of the width, so that the text of a chart keeps its size.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

CLIPPED = 0.001
"""Share of the values at each end that do not widen the scale."""

SMOOTHING = 2.0
"""Standard deviation of the kernel of an outline, in bins."""


SHADES = 9
"""Number of colours of a table of counts."""


@dataclass(frozen=True)
class Scale:
    """A horizontal axis."""

    low: float
    high: float

    def position(self, value: float) -> float:
        """Percentage of the width at which a value is, between 0 and 100."""
        share = (min(max(value, self.low), self.high) - self.low) / (self.high - self.low)
        return round(100 * share, 2)

    def ticks(self, about: int = 8) -> Sequence[float]:
        """Round values along the axis."""
        raw = (self.high - self.low) / about
        power = 10.0 ** math.floor(math.log10(raw))
        step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= raw)
        first, last = math.ceil(self.low / step), math.floor(self.high / step)
        return [round(index * step, 10) for index in range(first, last + 1)]


@dataclass(frozen=True)
class Bar:
    """One bar of a chart: percentages of the width, and a height of up to 1."""

    left: float
    width: float
    height: float
    low: float
    high: float
    count: int


def shade_of(value: float, largest: float) -> int:
    """A shade from 1 to SHADES by the square root of a count or share; 0 for none."""
    return min(SHADES, 1 + int((value / largest) ** 0.5 * SHADES)) if value else 0


def scale_of(values: NDArray[np.float64]) -> Scale | None:
    """The scale of some values without outliers; None where they do not differ."""
    known = values[~np.isnan(values)]
    if not len(known):
        return None
    low, high = np.quantile(known, [CLIPPED, 1 - CLIPPED]).tolist()
    if high - low <= 1e-9 * max(abs(low), abs(high), 1.0):
        low, high = float(known.min()), float(known.max())
    return Scale(low, high) if high - low > 1e-9 * max(abs(low), abs(high), 1.0) else None


def histogram(
    values: NDArray[np.float64], scale: Scale, bins: int, *, logarithmic: bool = False
) -> Sequence[Bar]:
    """Bars of a histogram; the outermost ones hold the values beyond the scale."""
    known = values[~np.isnan(values)].clip(scale.low, scale.high)
    counts, edges = np.histogram(known, bins=bins, range=(scale.low, scale.high))
    heights = np.log1p(counts) if logarithmic else counts.astype(np.float64)
    heights = heights / max(float(heights.max()), 1e-300)
    return [
        Bar(
            round(100 * index / bins, 3),
            round(100 / bins - 0.1, 3),
            round(float(heights[index]), 4),
            float(edges[index]),
            float(edges[index + 1]),
            int(counts[index]),
        )
        for index in range(bins)
    ]


def densities(
    groups: Sequence[NDArray[np.float64]], scale: Scale, bins: int
) -> NDArray[np.float64]:
    """Smoothed densities of several groups, relative to the highest. Shape (groups, bins)."""
    reach = math.ceil(3 * SMOOTHING)
    kernel = np.exp(-0.5 * (np.arange(-reach, reach + 1) / SMOOTHING) ** 2)
    rows = [
        np.convolve(
            np.histogram(group, bins=bins, range=(scale.low, scale.high))[0] / max(len(group), 1),
            kernel / kernel.sum(),
            "same",
        )
        for group in groups
    ]
    stacked = np.array(rows).reshape(len(rows), bins)
    return stacked / max(float(stacked.max(initial=0)), 1e-300)


def outline(density: NDArray[np.float64], width: float, height: float) -> str:
    """The path of the area under a density, for the attribute `d`."""
    across = np.linspace(0, width, len(density))
    points = (
        f"L{x:.4g} {height - y * (height - 1):.4g}" for x, y in zip(across, density, strict=True)
    )
    return f"M0 {height:g}{''.join(points)}L{width:g} {height:g}Z"
