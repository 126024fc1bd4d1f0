"""Numbers that tell how an image looks: its size, tones and sharpness, from a few hundred pixels.

An image is decoded for its features anyway, so that what is added is the time to pick 576 places on
a grid, and a few operations on those of a whole batch. The numbers are those of the whole image in
its own size: they depend neither on the backbone nor on random views.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.tables import to_arrow, to_numpy

NUMBERS = ("height", "width", "p01", "p25", "p99", "sharpness", "grey_rows")
"""The numbers of an image, in order.

Height and width are in pixels, and `p01`, `p25` and `p99` are percentiles of the luma, from 0 to
255. `grey_rows` is the share of the lower rows that are plain middle grey, without a gap: decoders
fill what is missing at the end of a JPEG with it.

`sharpness` compares pixels one step apart with pixels four steps apart: the root mean square of
the second differences of green, over that of the differences across four steps, in the direction
in which it is smaller. Both grow alike with the contrast, so that a dark image is not blurred; blur
takes only the former away. A direction without a quarter of the differences of the other one does
not count, because stripes are sharp. NaN where the image has no four steps.
"""

GRID = 24
"""Rows and columns of the grid."""

STEPS = 4
"""Number of steps of the longer differences."""

STEPS_PER_SIDE = 256
"""Steps in the shorter side of a large image, about as many as a backbone sees pixels."""

GREY, GREY_TOLERANCE = 128, 2
"""Level of plain middle grey, and how far a second compression moves it."""

STRIPES = 4
"""Ratio of the differences of the two directions from which an image is striped."""

RED, GREEN, BLUE = range(3)
RIGHT, BELOW = slice(3, 6), slice(6, 9)
"""Places in `SampledPixels.levels`."""


@dataclass(frozen=True)
class SampledPixels:
    """Some pixels of an image.

    Attributes:
        levels: Red, green and blue at the places of the grid, and green 1, 2 and 4 steps to the
            right of them and below them. Uint8, shape (9, GRID * GRID).
    """

    height: int
    width: int
    levels: NDArray[np.uint8]


def sample_pixels(pixels: NDArray[np.uint8]) -> SampledPixels:
    """Takes the pixels of an image that `measure` needs. Shape (height, width, 3)."""
    height, width, _ = pixels.shape
    places = sampled_places(height, width)
    return SampledPixels(height, width, np.ascontiguousarray(pixels).reshape(-1).take(places))


@lru_cache(maxsize=64)
def sampled_places(height: int, width: int) -> NDArray[np.int64]:
    """Places of the sampled levels in the memory of an image. Shape (9, GRID * GRID)."""
    step = _step(height, width)
    rows, columns = (
        np.arange(GRID) * (side - 1 - STEPS * step) // (GRID - 1) for side in (height, width)
    )
    right, below = 3 * step, 3 * step * width
    offsets = [0, 1, 2, *(1 + steps * each for each in (right, below) for steps in (1, 2, STEPS))]
    grid = (3 * (rows[:, None] * width + columns)).ravel()
    return np.array(offsets)[:, None] + grid


def _step(height: int, width: int) -> int:
    """Pixels of a step; 0 where there is no room for four."""
    shorter = min(height, width)
    return max(1, round(shorter / STEPS_PER_SIDE)) if shorter > STEPS else 0


def measure(samples: Sequence[SampledPixels]) -> NDArray[np.float32]:
    """The numbers of some images. Shape (images, len(NUMBERS))."""
    sizes = np.array([(each.height, each.width) for each in samples], np.float32)
    levels = np.stack([each.levels for each in samples])
    red, green, blue = levels[:, : RIGHT.start].astype(np.uint16).swapaxes(0, 1)
    luma = (2 * red + 5 * green + blue) >> 3
    tones = np.sort(luma, axis=1)  # NumPy sorts 16 bits many times as fast as 8
    last = tones.shape[1] - 1
    percentiles = tones[:, [round(share * last) for share in (0.01, 0.25, 0.99)]]
    sharpness = _sharpness(levels)
    sharpness[sizes.min(axis=1) <= STEPS] = np.nan
    return np.column_stack([sizes, percentiles, sharpness, _grey_rows(levels)]).astype(np.float32)


def _sharpness(levels: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Shape (images,)."""
    here = levels[:, GREEN].astype(np.int16)
    across, ratios = [], []
    for direction in (RIGHT, BELOW):
        one, two, four = levels[:, direction].astype(np.int16).swapaxes(0, 1)
        across.append(_root_mean_square(four - here))
        # A level is added, so that rounding alone is not sharp.
        ratios.append(_root_mean_square(here - 2 * one + two) / (across[-1] + 1))
    is_flat = [mine * STRIPES < other for mine, other in (across, across[::-1])]
    counted = np.where(is_flat, np.inf, ratios)
    smaller: NDArray[np.float32] = counted.min(axis=0).astype(np.float32)
    return smaller


def _root_mean_square(numbers: NDArray[np.int16]) -> NDArray[np.float32]:
    """Along the last axis."""
    floats = numbers.astype(np.float32)
    return np.sqrt(np.einsum("ij,ij->i", floats, floats) / floats.shape[1])


def _grey_rows(levels: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Share of the lower rows of the grid that are grey. Shape (images,)."""
    colours = levels[:, : RIGHT.start].reshape(len(levels), -1, GRID, GRID)
    # What is darker wraps around and so is above.
    near_grey = (colours - np.uint8(GREY - GREY_TOLERANCE)) <= np.uint8(2 * GREY_TOLERANCE)
    is_grey = np.all(np.all(near_grey, axis=3), axis=1)
    return np.logical_and.accumulate(is_grey[:, ::-1], axis=1).sum(axis=1) / GRID


def to_struct(numbers: NDArray[np.float32]) -> pa.StructArray:
    """The numbers as a column of a feature store, from shape (images, len(NUMBERS))."""
    return pa.StructArray.from_arrays([to_arrow(column) for column in numbers.T], NUMBERS)


def from_struct(column: pa.StructArray) -> NDArray[np.float32]:
    """The numbers of a column, NaN where they are not known. Shape (rows, len(NUMBERS))."""
    present = dict(zip((field.name for field in column.type), column.flatten(), strict=True))
    numbers = np.full((len(column), len(NUMBERS)), np.nan, np.float32)
    for place, name in enumerate(NUMBERS):
        if name in present:
            numbers[:, place] = to_numpy(present[name])
    return numbers
