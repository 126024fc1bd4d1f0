"""The object in a box of an image, with what is around it, as an encoded image of its own."""

import io
import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import BinaryIO

from PIL import Image, ImageDraw

from difficulty_service.base.errors import ImageError
from difficulty_service.base.files import content_digest
from difficulty_service.images.header import (
    DEFAULT_MAX_PIXELS,
    decode_to_pil,
    naming_memory,
    open_header,
    orientation,
    read_encoded,
    small_picture,
)
from difficulty_service.images.opener import ImageOpener
from difficulty_service.images.pixels import Pixels

CONTEXT = 0.1
"""What is seen around a box on each side, as a share of its longer side."""

FEWEST_PIXELS = 4
"""Pixels of the shorter side of a box, below which nobody can tell what it shows."""

SAME_SHAPE = 0.02
"""Relative difference of two ratios of width to height, up to which an image was only resized."""

KEPT_PIXELS = 16_000_000
"""Pixels of decoded images in memory, so that an image with many boxes is decoded once."""

GREY = (128, 128, 128)
"""Colour of what is outside of an outline."""

Sides = tuple[float, float, float, float]
"""Left, top, right and bottom of a box."""

Point = tuple[float, float]
Outline = tuple[tuple[Point, ...], ...]
"""Polygons around the parts of an object that are seen; none where only its box is known."""


@dataclass(frozen=True)
class Crop:
    """The object in a box: a square around it, as far as the image goes.

    A square, because networks see a square in the middle, and of a long box would see a part.

    Attributes:
        sides: Sides of the box, from the upper left corner of the upright image.
        frame: Width and height of the image in the unit of the sides, such as (1, 1) for shares of
            it; None for pixels. An image that was resized since has other pixels than its frame.
        outline: What is outside of it becomes grey; in the unit of the sides.
        is_upright: Whether the sides are of the upright image, although the frame may be that of
            the image as it is stored.
        pixels: What becomes black and white of more than eight bits a channel.
    """

    sides: Sides
    frame: tuple[float, float] | None = None
    outline: Outline = ()
    is_upright: bool = False
    pixels: Pixels | None = None

    def cut(self, data: bytes, max_pixels: int) -> bytes:
        """The crop of an encoded image as PNG, without compression; raises ImageError."""
        picture, turn = _decode_once(data, max_pixels, self.pixels)
        place = self._placing(picture.size, turn)
        corners = place(self.sides[:2]), place(self.sides[2:])
        (left, right), (top, bottom) = (sorted(ends) for ends in zip(*corners, strict=True))
        region = _region((left, top, right, bottom), picture.size)
        crop = picture.crop(region)
        if self.outline:
            polygons = [[place(point) for point in polygon] for polygon in self.outline]
            crop = _within(crop, polygons, region[:2])
        file = io.BytesIO()
        crop.save(file, "PNG", compress_level=0)
        return file.getvalue()

    def _placing(self, size: tuple[int, int], turn: int) -> Callable[[Sequence[float]], Point]:
        """Where a point is among the pixels of the upright image."""
        if self.frame is None:
            return lambda point: (point[0], point[1])
        width, height = upright_frame(self.frame, size) if self.is_upright else self.frame
        turned, upright = None, (width, height)
        if (width, height) != (1, 1) and not _is_shape((width, height), size):
            # Whoever reads an image without its EXIF block sees it lying on its side.
            if turn not in _TURNS or not _is_shape((height, width), size):
                raise ImageError(
                    f"its box is of an image of {width:g} x {height:g} pixels, and this one has "
                    f"{size[0]} x {size[1]}"
                )
            turned, upright = _TURNS[turn], (height, width)
        across, down = size[0] / upright[0], size[1] / upright[1]

        def place(point: Sequence[float]) -> Point:
            x, y = point
            if turned is not None:
                x, y = turned(x, y, width, height)
            return x * across, y * down

        return place


@dataclass(frozen=True)
class CropOpener:
    """Opener of a crop.

    Attributes:
        image: Opener of the whole image.
        max_pixels: Maximum number of pixels of the whole image.
    """

    image: ImageOpener
    crop: Crop
    max_pixels: int = DEFAULT_MAX_PIXELS

    def __call__(self) -> BinaryIO:
        """Opens the crop as an encoded image."""
        return io.BytesIO(self.crop.cut(read_encoded(self.image, self.max_pixels), self.max_pixels))


def seen_as(opener: ImageOpener, pixels: Pixels | None) -> ImageOpener:
    """The opener of an image; of a crop, with what becomes black and white of the whole image."""
    if pixels is None or not isinstance(opener, CropOpener):
        return opener
    return replace(opener, crop=replace(opener.crop, pixels=pixels))


def picture_maker(max_pixels: int) -> Callable[..., bytes]:
    """Makes a small picture of an image of at most `max_pixels`, or of a crop of it.

    It takes the encoded image, the longest side of the picture, the crop, and what becomes black
    and white of more than eight bits a channel.
    """

    def make(
        data: bytes, size: int, crop: Crop | None = None, pixels: Pixels | None = None
    ) -> bytes:
        if crop is not None:
            with naming_memory():
                data = replace(crop, pixels=pixels).cut(data, max_pixels)
        return small_picture(data, size, max_pixels, pixels)

    return make


def upright_frame(frame: tuple[float, float], size: tuple[int, int]) -> tuple[float, float]:
    """The frame of an upright image of a size, whose sides are swapped in that of a lying one."""
    swapped = frame[1], frame[0]
    return swapped if not _is_shape(frame, size) and _is_shape(swapped, size) else frame


def _is_shape(first: tuple[float, float], second: tuple[float, float]) -> bool:
    return math.isclose(first[0] * second[1], first[1] * second[0], rel_tol=SAME_SHAPE)


_TURNS: dict[int, Callable[[float, float, float, float], tuple[float, float]]] = {
    5: lambda x, y, _width, _height: (y, x),
    6: lambda x, y, _width, height: (height - y, x),
    7: lambda x, y, width, height: (height - y, width - x),
    8: lambda x, y, width, _height: (y, width - x),
}
"""Where a point goes that EXIF orientations move to another side, as in `header.TRANSPOSES`."""


def _within(
    crop: Image.Image, polygons: Sequence[Sequence[Point]], corner: tuple[int, int]
) -> Image.Image:
    """A crop with grey outside of polygons, whose points are counted from another corner."""
    mask = Image.new("L", crop.size)
    draw = ImageDraw.Draw(mask)
    for polygon in polygons:
        draw.polygon([(x - corner[0], y - corner[1]) for x, y in polygon], fill=255)
    return Image.composite(crop.convert("RGB"), Image.new("RGB", crop.size, GREY), mask)


def _region(sides: Sides, size: tuple[int, int]) -> tuple[int, int, int, int]:
    """The pixels of the square around a box; refuses a box that shows nothing."""
    width, height = size
    left, right = (min(max(side, 0), width) for side in (sides[0], sides[2]))
    top, bottom = (min(max(side, 0), height) for side in (sides[1], sides[3]))
    if right <= left or bottom <= top:
        numbers = ", ".join(f"{side:.6g}" for side in sides)
        raise ImageError(
            f"its box ({numbers}) is outside of the image of {width} x {height} pixels"
        )
    if min(right - left, bottom - top) < FEWEST_PIXELS:
        raise ImageError(
            f"its box has {right - left:.3g} x {bottom - top:.3g} pixels, and below "
            f"{FEWEST_PIXELS} nobody can tell what it shows"
        )
    side = math.ceil(max(right - left, bottom - top) * (1 + 2 * CONTEXT))
    first_column, last_column = _around(left + right, side, width)
    first_row, last_row = _around(top + bottom, side, height)
    return first_column, first_row, last_column, last_row


def _around(ends: float, length: int, whole: int) -> tuple[int, int]:
    """An interval around the middle of two ends, moved into the whole as far as it fits."""
    start = max(0, min(round((ends - length) / 2), whole - length))
    return start, min(start + length, whole)


Decoded = tuple[Image.Image, int]
"""An upright image, and the EXIF orientation of which it was."""

_RECENT: OrderedDict[bytes, "Future[Decoded]"] = OrderedDict()
_LOCK = threading.Lock()


def _decode_once(data: bytes, max_pixels: int, pixels: Pixels | None) -> Decoded:
    """The decoded image, which threads that ask at the same time share."""
    key = content_digest(data) + str(pixels or "").encode()
    with _LOCK:
        known = _RECENT.pop(key, None)
        pending = _RECENT[key] = known or Future()
    if known is None:
        try:
            header = open_header(data, max_pixels)
            pending.set_result((decode_to_pil(header, pixels), orientation(header)))
        except BaseException as error:
            pending.set_exception(error)
            with _LOCK:
                _RECENT.pop(key, None)
            raise
        _forget_oldest()
    return pending.result()


def _forget_oldest() -> None:
    """Forgets decoded images until the others have as many pixels as may be kept."""
    with _LOCK:
        done = {
            key: each.result()[0]
            for key, each in _RECENT.items()
            if each.done() and each.exception() is None
        }
        left = sum(picture.width * picture.height for picture in done.values())
        for key, picture in done.items():
            if left <= KEPT_PIXELS:
                break
            left -= picture.width * picture.height
            del _RECENT[key]
