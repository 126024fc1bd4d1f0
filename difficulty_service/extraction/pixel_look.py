"""A first look at the pixels of a dataset, which says what becomes black and white in all of them.

Only images with more than eight bits a channel are decoded; of others, the first bytes are read.
The look is at the same images wherever it is done, so that several machines choose the same range.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from difficulty_service.base.errors import DifficultyError
from difficulty_service.base.wording import count_of
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.images.crops import CropOpener
from difficulty_service.images.header import open_header, read_encoded
from difficulty_service.images.pixel_range import (
    NO_DATA_TAG,
    PixelRange,
    is_unsigned,
    is_wide,
    measured,
)
from difficulty_service.images.pixels import Pixels, is_measured
from difficulty_service.images.png import is_deep
from difficulty_service.images.png import read_values as read_deep
from difficulty_service.images.tiff import (
    TiffPage,
    chosen_bands,
    page_number,
    pages_of,
    read_values,
)

USUAL = Pixels()

LOOKED_AT, FIRST = 64, 16
"""Images that are looked at, evenly spaced, and those that tell whether it is worth it."""

PERCENTILES = (0.1, 99.9)
"""Of the pixels of an image, beyond which its darkest and brightest ones do not count."""

OF_IMAGES = (2.0, 98.0)
"""Of these values of images: one with a fault does not darken all others."""

LEAST_SPAN = 1 << 15
"""Span of integers of sixteen bits from which their upper eight bits keep what they show."""

_MOST_PIXELS = 1 << 16  # of an image, evenly spaced
_HEAD_BYTES = 32
_PNG, _PNG_DEPTH, _SIXTEEN = b"\x89PNG\r\n\x1a\n", 24, 16
_WIDE_FORMATS = (b"II*\0", b"MM\0*", b"P2", b"P5")
"""What TIFF and grey PPM begin with, beside PNG the formats that may have more than eight bits."""


@dataclass(frozen=True)
class PixelLook:
    """What a look found.

    Attributes:
        range: The range of the values; None where most images have eight bits, or integers of
            sixteen span so much that their upper eight bits hold what they show.
        num_images: Number of images with more than eight bits, of those that were looked at.
        notes: Which bands and pages are not seen, a sentence each.
    """

    range: PixelRange | None = None
    num_images: int = 0
    notes: Sequence[str] = ()


def look_at_pixels(dataset: Dataset, max_pixels: int, chosen: Pixels = USUAL) -> PixelLook:
    """What the images of a dataset have that eight bits, three bands and a page do not show.

    Args:
        chosen: What is known already.
    """
    if dataset.modality == "text":
        return PixelLook()
    positions = np.unique(np.linspace(0, len(dataset.labels) - 1, LOOKED_AT).astype(int))
    first = positions[:: max(LOOKED_AT // FIRST, 1)]
    if not any(_may_be_wide(opener) for opener in dataset.open_images(first.tolist())):
        return PixelLook()
    seen = list[_SeenValues]()
    for opener in dataset.open_images(positions.tolist()):
        if _may_be_wide(opener):
            with suppress(DifficultyError):
                seen.append(_look_at(_whole(opener), max_pixels, chosen))
    ends = [each.ends for each in seen if each.ends is not None]
    notes = [*filter(None, (_pages_note(seen, chosen), _bands_note(seen, chosen)))]
    # Sixteen bits among photographs of eight are those of photographs, too.
    if not ends or 2 * len(ends) < len(positions):
        return PixelLook(notes=notes)
    lows, highs = np.array(ends).T
    low = float(np.percentile(lows, OF_IMAGES[0]))
    high = float(np.percentile(highs, OF_IMAGES[1]))
    integers = all(each.is_unsigned for each in seen)
    if integers and high - low >= LEAST_SPAN:
        return PixelLook(notes=notes)
    if integers:
        low, high = float(np.floor(low)), float(np.ceil(high))
    found = PixelRange(low, high if high > low else low + 1)
    return PixelLook(found, len(ends), notes)


@dataclass(frozen=True)
class _SeenValues:
    """What one image has.

    Attributes:
        ends: Dark and bright end of its values; None of eight bits.
        are_shown: Whether all bands but alpha make its colours.
    """

    ends: tuple[float, float] | None = None
    is_unsigned: bool = True
    pages: int = 1
    bands: int = 1
    are_shown: bool = False


def _pages_note(seen: Sequence[_SeenValues], chosen: Pixels) -> str | None:
    several = [each for each in seen if each.pages > 1]
    if not several or chosen.page:
        return None
    return (
        f"{len(several)} of {count_of(len(seen), 'image')} that were looked at have several pages, "
        "of which the first is read; the option page reads another"
    )


def _bands_note(seen: Sequence[_SeenValues], chosen: Pixels) -> str | None:
    several = [each for each in seen if not each.are_shown and each.bands in (2, 4)]
    if not several or chosen.bands:
        return None
    read = "the first is" if several[0].bands == 2 else "the first three are"  # noqa: PLR2004
    return (
        f"{len(several)} of {count_of(len(seen), 'image')} that were looked at have "
        f"{several[0].bands} bands, of which {read} read; the option bands reads others"
    )


def _whole(opener: ImageOpener) -> ImageOpener:
    """The opener of the image that a crop is of."""
    return opener.image if isinstance(opener, CropOpener) else opener


def _may_be_wide(opener: ImageOpener) -> bool:
    """Whether the first bytes of an image are of a format and a depth with more than eight bits."""
    try:
        with _whole(opener)() as file:
            head = file.read(_HEAD_BYTES)
    except (DifficultyError, OSError):
        return False
    if head.startswith(_PNG):
        return len(head) > _PNG_DEPTH and head[_PNG_DEPTH] == _SIXTEEN
    return head.startswith(_WIDE_FORMATS)


def _look_at(opener: ImageOpener, max_pixels: int, chosen: Pixels) -> _SeenValues:
    data = read_encoded(opener, max_pixels)
    header = open_header(data, max_pixels)
    seen = _SeenValues()
    if header.format == "TIFF":
        pages = pages_of(data)
        page = pages[page_number(chosen.page, len(pages))]
        are_shown = page.has_alpha or page.is_cmyk
        seen = _SeenValues(pages=len(pages), bands=page.num_bands, are_shown=are_shown)
        if page.num_bands > 1:
            return _look_at_bands(data, page, chosen, seen)
        header.seek(page.place)
    if is_deep(header):
        return _with_ends(seen, read_deep(header), unsigned=True)
    if not is_wide(header):
        return seen
    try:
        header.load()
    except Exception:  # noqa: BLE001 - whatever is damaged is listed when the image is read
        return seen
    values = np.asarray(header)
    return _with_ends(seen, values[measured(header, values)], unsigned=is_unsigned(header))


def _look_at_bands(data: bytes, page: TiffPage, chosen: Pixels, seen: _SeenValues) -> _SeenValues:
    if page.dtype == np.uint8:
        return seen
    values = chosen_bands(read_values(data, page), chosen.bands, page)
    known = is_measured(values, page.tags.get(NO_DATA_TAG))
    return _with_ends(seen, values[known], unsigned=page.dtype.kind == "u")


def _with_ends(seen: _SeenValues, known: NDArray[np.generic], *, unsigned: bool) -> _SeenValues:
    step = max(known.size // _MOST_PIXELS, 1)
    ends = _percentiles(known.reshape(-1)[::step]) if known.size else None
    return replace(seen, ends=ends, is_unsigned=unsigned)


def _percentiles(values: NDArray[np.generic]) -> tuple[float, float]:
    low, high = np.percentile(values.astype(np.float64), PERCENTILES)
    return float(low), float(high)
