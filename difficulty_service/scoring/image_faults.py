"""Images with a fault that has nothing to do with their label: blurred, dark, nearly one colour.

A fault is a number of the image below a limit, and each limit is stated once, in `FAULTS`. The
number is also below half that of the median image, because images of 32 pixels are all soft. Where
even the median image is below the limit, as in X-rays or upscaled photographs, that is what the
images are like. Then an image has to be unlike the rest, too: `OUTLYING` standard deviations below
the median, which are estimated by the median absolute deviation (Iglewicz and Hoaglin, 1993).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from difficulty_service.base.tables import strings_to_arrow, to_arrow
from difficulty_service.images.appearance import NUMBERS, from_struct
from difficulty_service.scores.file import ScoreFile
from difficulty_service.scores.score_columns import FAULT_COLUMN

if TYPE_CHECKING:  # pages need the names of faults, and load no torch
    from difficulty_service.features.source import FeatureSource

OUTLYING = 3.5
"""Robust standard deviations from the median beyond which an image is unlike the rest."""

OUTLYING_SHARE = 0.5
"""Share of the median that the number of a faulty image is below: small images are all soft."""

DEVIATION_OF_MAD = 1.4826
"""Standard deviation of a normal distribution, in median absolute deviations."""

MOST_IN_SAMPLE = 100_000
"""Number of evenly spaced images, at most, of which medians are taken."""


@dataclass(frozen=True)
class Numbers:
    """The numbers of some images by their names; `short` is the shorter side. Each (images,)."""

    height: NDArray[np.float32]
    width: NDArray[np.float32]
    p01: NDArray[np.float32]
    p25: NDArray[np.float32]
    p99: NDArray[np.float32]
    sharpness: NDArray[np.float32]
    grey_rows: NDArray[np.float32]

    @property
    def short(self) -> NDArray[np.float32]:
        """Shorter side in pixels."""
        return np.minimum(self.height, self.width)


@dataclass(frozen=True)
class Fault:
    """A fault of an image.

    Attributes:
        number: What is too small where an image has the fault. Shape (images,).
        limit: What it has to reach.
        why: Reason for the limit.
        can_be_usual: Whether the limit is another one where the median image is below it.
        of_median: Whether the number is divided by its median first.
    """

    name: str
    number: Callable[[Numbers], NDArray[np.floating[Any]]]
    limit: float
    why: str
    can_be_usual: bool = True
    of_median: bool = False


FAULTS = (
    Fault(
        "one colour",
        lambda image: image.p99 - image.p01,
        9,
        "98 % of the pixels are within 8 of 255 levels, as far as a compression may move them",
        can_be_usual=False,
    ),
    Fault(
        "cut off",
        lambda image: 1 - image.grey_rows,
        0.94,
        "the lower rows are plain grey, at least two of 24, as a decoder fills a truncated file",
        can_be_usual=False,
    ),
    Fault("dark", lambda image: image.p99, 85, "99 % of the pixels are in the lowest third"),
    Fault(
        "overexposed",
        lambda image: 255 - image.p01,
        85,
        "99 % of the pixels are in the highest third: an object on a white ground is none",
    ),
    Fault(
        "low contrast",
        lambda image: image.p99 - image.p01,
        64,
        "98 % of the pixels are within a quarter of all levels",
    ),
    Fault(
        "blurred",
        lambda image: image.sharpness,
        0.4,
        "edges are wider than about 1/100 of the shorter side, or four pixels of a small image",
    ),
    Fault(
        "small",
        lambda image: image.short,
        0.25,
        "the shorter side is below a quarter of the median, and is enlarged four times as much",
        of_median=True,
    ),
    Fault(
        "elongated",
        lambda image: image.short / np.maximum(image.height, image.width),
        1 / 3,
        "one side is more than three times the other, and most backbones see the square in the "
        "middle, less than a third",
    ),
)
"""Every fault, in the order in which the clearest is named: what explains others comes first."""

FAULT_NAMES = tuple(fault.name for fault in FAULTS)
"""Their names, which are the values of `image_fault`."""


def count_faults(scores: ScoreFile) -> Mapping[str, int] | None:
    """Number of images with each fault that occurs; None where it is not known how images look."""
    known = scores.provenance.image_faults
    if known is not None or FAULT_COLUMN not in scores.table.column_names:
        return known
    counts = Counter(scores.table[FAULT_COLUMN].to_pylist())  # another program wrote the file again
    return {name: counts[name] for name in FAULT_NAMES if counts[name]}


@dataclass
class ImageFaults:
    """The clearest fault of each image of a store.

    Attributes:
        codes: Place in FAULTS, counted from 1; 0 for an image without a fault, or of which nothing
            is known. Shape (samples,).
    """

    codes: NDArray[np.uint8]
    counts: Mapping[str, int] = field(init=False)
    """Number of images with each fault, of those that occur, in the order of FAULTS."""

    def __post_init__(self) -> None:
        """Counts them."""
        numbers = np.bincount(self.codes, minlength=len(FAULTS) + 1)[1:].tolist()
        self.counts = {
            fault.name: number for fault, number in zip(FAULTS, numbers, strict=True) if number
        }

    def column(self, start: int, num_rows: int) -> pa.DictionaryArray:
        """Names of the faults from position `start` on; null for images without one."""
        codes = self.codes[start : start + num_rows].astype(np.float32)
        places = to_arrow(np.where(codes == 0, np.nan, codes - 1)).cast(pa.int32())
        return pa.DictionaryArray.from_arrays(places, strings_to_arrow(FAULT_NAMES))


def find_image_faults(store: "FeatureSource") -> ImageFaults | None:
    """The faults of the images of a store; None where it does not tell how any of them looks.

    Reads the numbers of all images twice, and holds one byte for each.
    """
    step = max(1, -(-store.description.num_samples // MOST_IN_SAMPLE))
    columns = (store.appearance(shard) for shard in range(store.num_shards))
    known = [from_struct(column)[::step] for column in columns if column is not None]
    sample = np.concatenate([np.empty((0, len(NUMBERS)), np.float32), *known])
    if np.isnan(sample).all():
        return None
    limits = find_limits(sample)
    return ImageFaults(np.concatenate([clearest_faults(rows, limits) for rows in _numbers(store)]))


def find_limits(sample: NDArray[np.float32]) -> NDArray[np.float64]:
    """The limit of each fault of images like these. From shape (images, len(NUMBERS))."""
    return np.array([_limit(fault, fault.number(Numbers(*sample.T))) for fault in FAULTS])


def clearest_faults(numbers: NDArray[np.float32], limits: NDArray[np.float64]) -> NDArray[np.uint8]:
    """The first fault of each image as in `ImageFaults.codes`; what is not known is none.

    From shape (images, len(NUMBERS)) to (images,).
    """
    columns = Numbers(*numbers.T)
    codes = np.zeros(len(numbers), np.uint8)
    for code in range(len(FAULTS), 0, -1):
        codes[FAULTS[code - 1].number(columns) < limits[code - 1]] = code
    return codes


def _limit(fault: Fault, values: NDArray[np.floating[Any]]) -> float:
    known = values[~np.isnan(values)]
    if not len(known):
        return fault.limit
    median = float(np.median(known))
    if fault.of_median:
        return fault.limit * median
    if not fault.can_be_usual:
        return fault.limit
    limit = min(fault.limit, OUTLYING_SHARE * median)
    if median >= fault.limit:
        return limit
    deviation = DEVIATION_OF_MAD * float(np.median(np.abs(known - median)))
    return min(limit, median - OUTLYING * deviation)


def _numbers(store: "FeatureSource") -> Iterator[NDArray[np.float32]]:
    """The numbers of each shard of a store, NaN where they are not known."""
    for shard in range(store.num_shards):
        column = store.appearance(shard)
        if column is not None:
            yield from_struct(column)
            continue
        num_rows = len(store.open_shard(shard, []).labels)
        yield np.full((num_rows // store.runs, len(NUMBERS)), np.nan, np.float32)
