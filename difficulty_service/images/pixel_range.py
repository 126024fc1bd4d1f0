"""Which values of images with more than eight bits a channel become black and white.

Cameras of twelve bits, microscopes, radiographs and satellites use a part of what sixteen or
thirty-two bits can hold. Values below the range are black, those above it white, and those that say
that nothing was measured are black, too.
"""

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from difficulty_service.base.errors import ImageError

KEY = "pixel_range"
"""Key of the range in the description of a preprocessing."""

NO_DATA = (-9999.0, -32768.0)
"""What stands for a value that is missing where an image does not say what does."""

NO_DATA_TAG = 42113  # of GDAL
_PHOTOMETRIC_TAG = 262
LARGEST = 1e30  # beyond, floating-point numbers stand for none

UNSIGNED_16 = ("I;16", "I;16L", "I;16B", "I;16N")
"""Modes of PIL with sixteen bits."""

_NUMBER = r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,2})?)"
_TEXT = re.compile(f"{_NUMBER}:{_NUMBER}")


@dataclass(frozen=True)
class PixelRange:
    """The values that become 0 and 255.

    Attributes:
        low: Value that becomes 0, as do all below.
        high: Value that becomes 255, as do all above.
    """

    low: float
    high: float

    def __str__(self) -> str:
        """`LOW:HIGH`, as `parse` takes it."""
        return f"{self.low:.9g}:{self.high:.9g}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """The range of a text such as 0:4095.

        Raises:
            ValueError: It is no such text, or the second number is not the larger one.
        """
        found = _TEXT.fullmatch(text.strip())
        if found is None or not float(found[1]) < float(found[2]):
            raise ValueError(f"{text!r} is not LOW:HIGH, two numbers such as 0:4095")
        return cls(float(found[1]), float(found[2]))

    @classmethod
    def of(cls, preprocessing: Mapping[str, object] | None) -> Self | None:
        """The range in the description of a preprocessing; None where it has none."""
        ends = (preprocessing or {}).get(KEY)
        if not isinstance(ends, list | tuple) or len(ends) != 2:  # noqa: PLR2004
            return None
        return cls(float(ends[0]), float(ends[1]))

    @property
    def sentence(self) -> str:
        """What becomes of the values, in words."""
        return (
            f"the images have more than 8 bits a channel: in all of them values up to {self.low:g} "
            f"become black and those from {self.high:g} on white"
        )

    def describe(self) -> dict[str, object]:
        """JSON values of the range, beside those of a preprocessing."""
        return {KEY: [self.low, self.high]}

    def to_bytes(self, image: Image.Image) -> NDArray[np.uint8]:
        """The grey values of an image with one channel. Shape (height, width)."""
        values = np.asarray(image)
        if is_unsigned(image):
            table = self.scaled(np.arange(1 << 16, dtype=np.float32))
            scaled: NDArray[np.uint8] = table[values.astype(np.uint16)]
        else:
            scaled = self.scaled(values)
        if is_white_zero(image):
            scaled = 255 - scaled
        kept = measured(image, values) | np.isinf(values)
        return np.where(kept, scaled, 0).astype(np.uint8)

    def scaled(self, values: NDArray[np.generic]) -> NDArray[np.uint8]:
        """Values of any type as eight bits, of the same shape; NaN is black."""
        numbers = np.nan_to_num(values.astype(np.float32), nan=self.low)
        shares = (numbers - np.float32(self.low)) / np.float32(self.high - self.low)
        return np.rint(shares.clip(0, 1) * 255).astype(np.uint8)


def is_wide(image: Image.Image) -> bool:
    """Whether an image has one channel of more than eight bits."""
    return image.mode in (*UNSIGNED_16, "I", "F")


def is_unsigned(image: Image.Image) -> bool:
    """Whether the values of a wide image are integers from 0 to 65535, as their type says."""
    return image.mode in UNSIGNED_16 or (image.mode == "I" and image.format == "PPM")


def is_white_zero(image: Image.Image) -> bool:
    """Whether an image is a TIFF in which 0 is white, which PIL knows of eight bits only."""
    return _tag(image, _PHOTOMETRIC_TAG) == 0


def measured(image: Image.Image, values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """Which values of a wide image were measured. Shape (height, width)."""
    if is_unsigned(image) and _no_data_of(image) is None:
        return np.ones(values.shape, np.bool_)
    known = np.isfinite(values) & (np.abs(values.astype(np.float64)) < LARGEST)
    missing: Collection[float] = NO_DATA
    stated = _no_data_of(image)
    if stated is not None:
        missing = (*NO_DATA, stated)
    return known & ~np.isin(values.astype(np.float64), list(missing))


def _no_data_of(image: Image.Image) -> float | None:
    """The value that GDAL's tag says stands for none; None where there is none such."""
    return no_data_of_text(_tag(image, NO_DATA_TAG))


def no_data_of_text(text: object) -> float | None:
    """The value in GDAL's tag; None where it is no finite number."""
    try:
        value = float(str(text).strip("\0 "))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _tag(image: Image.Image, number: int) -> object:
    tags = getattr(image, "tag_v2", None)
    return None if tags is None else tags.get(number)


def require_measured(image: Image.Image, values: NDArray[np.generic]) -> NDArray[np.bool_]:
    """As `measured`; raises ImageError where nothing was."""
    known = measured(image, values)
    if not known.any():
        raise ImageError("no pixel has a finite value that was measured")
    return known
