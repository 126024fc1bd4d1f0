"""What is seen of an image that no screen shows as it is: a range of values, bands and a page."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from difficulty_service.images.pixel_range import LARGEST, NO_DATA, PixelRange, no_data_of_text

_BANDS = re.compile(r"\d{1,4}(,\d{1,4}){2}|\d{1,4}")
_PAGE = re.compile(r"first|middle|last|[1-9]\d{0,3}")


def parse_bands(text: str) -> tuple[int, ...]:
    """Numbers of one band or of three.

    Raises:
        ValueError: They are others, or one of them is 0.
    """
    plain = text.replace(" ", "")
    numbers = tuple(map(int, plain.split(","))) if _BANDS.fullmatch(plain) else ()
    if not numbers or min(numbers) < 1:
        raise ValueError(
            f"{text!r} is not the number of a band, or of three for red, green and blue, such as "
            "4,3,2, counted from 1"
        )
    return numbers


def known_page(text: str) -> str:
    """`first`, `middle`, `last` or the number of a page.

    Raises:
        ValueError: It is none of these.
    """
    if not _PAGE.fullmatch(text):
        raise ValueError(f"{text!r} is not first, middle, last or a number, counted from 1")
    return text


@dataclass(frozen=True)
class Pixels:
    """What is seen of images with more than eight bits a channel, many bands or several pages.

    Attributes:
        range: Values that become black and white; None for the usual ones.
        bands: Numbers of the bands that are red, green and blue, or of the only one; none for the
            first ones.
        page: Page of a TIFF, as `known_page` has it; empty for the first.
    """

    range: PixelRange | None = None
    bands: tuple[int, ...] = field(default=())
    page: str = ""

    @classmethod
    def of(cls, preprocessing: Mapping[str, object] | None) -> Self | None:
        """What the description of a preprocessing says; None where it says nothing of it."""
        known: Mapping[str, Any] = preprocessing or {}
        bands, page = known.get("bands") or (), known.get("page") or ""
        found = cls(PixelRange.of(known), tuple(map(int, bands)), str(page))
        return found if found != cls() else None

    @classmethod
    def chosen(cls, pixel_range: str | None, bands: str | None, page: str | None) -> Self | None:
        """What the texts of options say, which are valid; None where none is given."""
        found = cls(
            PixelRange.parse(pixel_range) if pixel_range else None,
            parse_bands(bands) if bands else (),
            page or "",
        )
        return found if found != cls() else None

    def describe(self) -> dict[str, object]:
        """JSON values of what was chosen, beside those of a preprocessing."""
        chosen = {"bands": [*self.bands], "page": self.page}
        of_range = {} if self.range is None else self.range.describe()
        return of_range | {name: value for name, value in chosen.items() if value}

    def options(self) -> dict[str, str]:
        """The same as texts, as a person gives them."""
        chosen = {
            "pixel_range": "" if self.range is None else str(self.range),
            "bands": ",".join(map(str, self.bands)),
            "page": self.page,
        }
        return {name: text for name, text in chosen.items() if text}


def to_bytes(
    values: NDArray[Any], pixel_range: PixelRange | None, no_data: object
) -> NDArray[np.uint8]:
    """Bands of any type as eight bits: those of eight as they are. Shape (height, width, 3).

    Args:
        no_data: What GDAL's tag says stands for no value.
    """
    if values.dtype == np.uint8:
        return values
    known = is_measured(values, no_data)
    if pixel_range is None and values.dtype == np.uint16:
        return np.where(known, values >> 8, 0).astype(np.uint8)
    if pixel_range is None:
        some = values[known] if known.any() else np.zeros(1)
        low, high = float(some.min()), float(some.max())
        pixel_range = PixelRange(low, high if high > low else low + 1)
    return np.where(known, pixel_range.scaled(values), 0).astype(np.uint8)


def is_measured(values: NDArray[Any], no_data: object) -> NDArray[np.bool_]:
    """Which values of bands were measured, of the same shape; arguments as for `to_bytes`."""
    stated = no_data_of_text(no_data)
    known = np.isfinite(values)
    if values.dtype.kind != "u":
        known &= ~np.isin(values, NO_DATA) & (np.abs(values) < LARGEST)
    return known if stated is None else known & (values != stated)
