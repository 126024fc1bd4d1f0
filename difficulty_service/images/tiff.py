"""Values of TIFF with any number of bands, bits and pages, of which PIL shows a part at most.

The directories are read by PIL, and what is compressed is unpacked by the libraries that it has. A
chunk of a kind that only libtiff knows is given to it as a small grey image of its own.
"""

import io
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, TiffImagePlugin

from difficulty_service.base.errors import ImageError, Setting

MOST_BYTES = 1 << 31
"""Bytes of the unpacked bands of an image."""

MOST_PAGES = 10_000

_DAMAGED = (OSError, ValueError, TypeError, LookupError, SyntaxError, struct.error, zlib.error)

_KINDS = {1: "u", 2: "i", 3: "f"}
_ALPHA = (1, 2)  # of ExtraSamples; 0 is another band
_PLAIN, _DEFLATE = 1, (8, 32946)
_BY_LIBTIFF = (5, 32773, 34925, 50000)  # LZW, PackBits, LZMA, Zstandard
_HORIZONTAL, _FLOATING = 2, 3
_SEPARATE = 2
_SEPARATED = 5  # of PhotometricInterpretation
_TILES = 324  # their places
_REDUCED, _MASK = 1, 4  # bits of NewSubfileType


@dataclass(frozen=True)
class TiffPage:
    """A page of a TIFF.

    Attributes:
        tags: Values of its directory.
        order: `<` or `>`, the order of bytes.
        place: Its place among all pages, smaller copies and masks included.
    """

    tags: Any
    order: str
    place: int = 0

    def number(self, tag: int, usual: int) -> int:
        """A whole number; of several, the first."""
        value = self.tags.get(tag, usual)
        return int(value[0] if isinstance(value, tuple) else value)

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.number(256, 0), self.number(257, 0)

    @property
    def num_bands(self) -> int:
        """Number of bands, alpha among them."""
        return self.number(277, 1)

    @property
    def bits(self) -> int:
        """Bits of a value."""
        return self.number(258, 1)

    @property
    def has_alpha(self) -> bool:
        """Whether the last band says what is seen of the others."""
        extra = self.tags.get(338, ())
        extra = extra if isinstance(extra, tuple) else (extra,)
        return bool(extra) and extra[-1] in _ALPHA

    @property
    def is_cmyk(self) -> bool:
        """Whether its four bands are inks, which make its colours together."""
        return self.number(262, 1) == _SEPARATED and self.num_bands == 4  # noqa: PLR2004

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of a value; ImageError where it has no whole bytes."""
        kind = _KINDS.get(self.number(339, 1))
        if kind is None or self.bits not in ((32, 64) if kind == "f" else (8, 16, 32)):
            raise ImageError(
                f"a TIFF with {self.num_bands} bands of {self.bits} bits, which is not read"
            )
        return np.dtype(f"{self.order}{kind}{self.bits // 8}")


def pages_of(data: bytes) -> list[TiffPage]:
    """The pages of a TIFF, without smaller copies of them and masks.

    Raises:
        ImageError: Its directories are damaged.
    """
    order = "<" if data[:2] == b"II" else ">"
    is_large = data[2:4] in (b"\x2b\0", b"\0\x2b")
    found = list[TiffPage]()
    try:
        directory = TiffImagePlugin.ImageFileDirectory_v2(data[: 16 if is_large else 8])
        seen, at = set[int](), directory.next
        while at and at not in seen and len(found) < MOST_PAGES:
            seen.add(at)
            file = io.BytesIO(data)
            file.seek(at)
            directory = TiffImagePlugin.ImageFileDirectory_v2(data[: 16 if is_large else 8])
            directory.load(file)
            page = TiffPage(dict(directory), order, len(seen) - 1)
            if not found or not page.number(254, 0) & (_REDUCED | _MASK):
                found.append(page)
            at = directory.next
    except (
        OSError,
        ValueError,
        TypeError,
        KeyError,
        SyntaxError,
        struct.error,
        IndexError,
    ) as error:
        raise ImageError(f"not a readable TIFF image: {error}") from error
    if not found:
        raise ImageError("not a readable TIFF image: it has no page")
    return found


def page_number(choice: str, number: int) -> int:
    """The place of a page that is chosen, of so many.

    Raises:
        ImageError: There is no such page.
    """
    named = {"": 0, "first": 0, "middle": number // 2, "last": number - 1}
    at = named.get(choice, int(choice) - 1 if choice.isdecimal() else -1)
    if not 0 <= at < number:
        raise ImageError(f"it has {number} pages, and no page {choice}", parameter="page")
    return at


def read_values(data: bytes, page: TiffPage) -> NDArray[Any]:
    """The values of a page. Shape (height, width, bands).

    Raises:
        ImageError: It is damaged, too large, or packed in a way that is not read.
    """
    (width, height), bands, dtype = page.size, page.num_bands, page.dtype
    if width * height * bands * dtype.itemsize > MOST_BYTES:
        raise ImageError(f"{bands} bands of {width} x {height} pixels are more than are read")
    values = np.zeros((height, width, bands), dtype)
    try:
        for plane, top, left, chunk in _chunks(data, page):
            rows, columns = min(chunk.shape[0], height - top), min(chunk.shape[1], width - left)
            values[top : top + rows, left : left + columns, plane] = chunk[:rows, :columns]
    except _DAMAGED as error:
        raise ImageError(f"cannot be decoded: {error}") from error
    return values.astype(dtype.newbyteorder("="))


def _chunks(data: bytes, page: TiffPage) -> Iterator[tuple[slice, int, int, NDArray[Any]]]:
    """The bands, the place and the values of each strip or tile."""
    width, height = page.size
    is_tiled = _TILES in page.tags
    across, down = (page.number(322, width), page.number(323, height)) if is_tiled else (width, 0)
    down = down or min(page.number(278, height), height)
    offsets, counts = (
        _listed(page.tags[tag]) for tag in ((_TILES, 325) if is_tiled else (273, 279))
    )
    is_separate = page.number(284, 1) == _SEPARATE and page.num_bands > 1
    bands = 1 if is_separate else page.num_bands
    per_row = -(-width // across)
    each = per_row * -(-height // down)
    for number, (offset, count) in enumerate(zip(offsets, counts, strict=True)):
        plane, place = divmod(number, each)
        top, left = place // per_row * down, place % per_row * across
        rows = down if is_tiled else min(down, height - top)
        packed = data[offset : offset + count]
        chunk = _unpacked(packed, page, (rows, across, bands))
        chosen = slice(plane, plane + 1) if is_separate else slice(0, bands)
        yield chosen, top, left, chunk


def _listed(value: object) -> tuple[int, ...]:
    return value if isinstance(value, tuple) else (value,)


def _unpacked(packed: bytes, page: TiffPage, shape: tuple[int, int, int]) -> NDArray[Any]:
    rows, columns, bands = shape
    dtype = page.dtype
    length = columns * bands * dtype.itemsize
    kind = page.number(259, _PLAIN)
    if kind == _PLAIN:
        raw = packed[: rows * length]
    elif kind in _DEFLATE:
        raw = zlib.decompressobj().decompress(packed, rows * length)
    elif kind in _BY_LIBTIFF:
        raw = _by_libtiff(packed, kind, length, rows)
    else:
        raise ImageError(f"a TIFF with {page.num_bands} bands in the compression {kind}, not read")
    predictor = page.number(317, 1)
    if predictor == _FLOATING:
        lines = np.frombuffer(raw, np.uint8).reshape(rows, columns * dtype.itemsize, bands)
        summed = np.cumsum(lines, axis=1, dtype=np.uint8).reshape(rows, dtype.itemsize, -1)
        whole = np.ascontiguousarray(summed.transpose(0, 2, 1)).view(dtype.newbyteorder(">"))
        return whole.reshape(shape)
    values = np.frombuffer(raw, dtype).reshape(shape)
    if predictor == _HORIZONTAL:
        values = np.cumsum(values, axis=1, dtype=dtype.newbyteorder("="))
    return values


def _by_libtiff(packed: bytes, kind: int, width: int, height: int) -> bytes:
    """Unpacks the bytes of a chunk as those of a grey image."""
    tags = (
        (256, 4, width), (257, 4, height), (258, 3, 8), (259, 3, kind), (262, 3, 1),
        (273, 4, 8), (277, 3, 1), (278, 4, height), (279, 4, len(packed)),
    )  # fmt: skip
    directory = struct.pack("<H", len(tags)) + b"".join(
        struct.pack("<HHII", tag, type_, 1, value) for tag, type_, value in tags
    )
    body = packed + b"\0" * (len(packed) % 2)
    start = struct.pack("<2sHI", b"II", 42, 8 + len(body))
    image = TiffImagePlugin.TiffImageFile(io.BytesIO(start + body + directory + bytes(4)), "")
    return image.tobytes()


class BandsFile(ImageFile.ImageFile):
    """The header of a TIFF that PIL cannot show, whose bands are read by `read_values`."""

    format = "TIFF"

    def _open(self) -> None:
        page = pages_of(self.fp.read())[0]  # type: ignore[union-attr]
        page.dtype  # noqa: B018 - refuses what cannot be read
        self._size, self._mode = page.size, "RGB"
        self.tile = []

    def load(self) -> Any:  # noqa: ANN401 - as PIL has it
        """Refuses to choose three bands of many, which `decode_to_pil` is told."""
        raise _undecided(pages_of(self.fp.getvalue())[0].num_bands)  # type: ignore[union-attr]


def _undecided(number: int) -> ImageError:
    return ImageError(
        f"a TIFF with {number} bands, and nothing says which are red, green and blue",
        "choose them as ",
        Setting("bands", "3,2,1"),
        parameter="bands",
    )


def chosen_bands(values: NDArray[Any], bands: tuple[int, ...], page: TiffPage) -> NDArray[Any]:
    """Three bands, or the same one three times. Shape (height, width, 3).

    Args:
        bands: Numbers of three bands or of one, counted from 1; none for the first ones.

    Raises:
        ImageError: There is no such band, or no choice of many.
    """
    number = values.shape[2]
    if not bands:
        colours = number - page.has_alpha
        if colours > 3:  # noqa: PLR2004
            raise _undecided(number)
        bands = (1, 2, 3) if colours == 3 else (1,)  # noqa: PLR2004
    if max(bands) > number:
        raise ImageError(f"it has {number} bands, and no band {max(bands)}", parameter="bands")
    picked = values[:, :, [each - 1 for each in bands]]
    return picked if len(bands) > 1 else np.repeat(picked, 3, axis=2)


def upright(image: Image.Image, page: TiffPage, turns: dict[int, Image.Transpose]) -> Image.Image:
    """An image as its tag of orientation says."""
    turn = turns.get(page.number(274, 1))
    return image if turn is None else image.transpose(turn)
