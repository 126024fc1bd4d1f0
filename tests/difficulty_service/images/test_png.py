"""PNG of sixteen bits with several channels: what is seen of the values that PIL cuts to eight."""

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from difficulty_service.base.errors import ImageError
from difficulty_service.extraction.pixel_look import look_at_pixels
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, decode_to_pil, open_header
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels
from difficulty_service.images.png import read_values
from tests.dataset_files import dataset_of

RANGE = PixelRange(100, 1000)
COLOUR_TYPES = {2: 4, 3: 2, 4: 6}
"""The number in the header of a PNG, by the number of channels."""

VALUES = np.random.default_rng(0).integers(0, 1200, (9, 7, 4)).astype(np.uint16)


def png(values: NDArray[np.uint16]) -> bytes:
    """Encodes values of shape (height, width, channels) as the specification says."""
    height, width, channels = values.shape
    lines = b"".join(b"\0" + line.astype(">u2").tobytes() for line in values)
    header = struct.pack(">IIBBBBB", width, height, 16, COLOUR_TYPES[channels], 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
        for name, data in chunks
    )


def seen(data: bytes, pixel_range: PixelRange | None) -> NDArray[np.uint8]:
    return np.asarray(decode_to_pil(open_header(data), pixel_range and Pixels(pixel_range)))


@pytest.mark.parametrize("channels", COLOUR_TYPES)
def test_values_are_read_whole_and_without_alpha(channels: int) -> None:
    values = VALUES[..., :channels]

    found = read_values(open_header(png(values)))

    grey = np.repeat(values[..., :1], 3, axis=2)
    np.testing.assert_array_equal(found, grey if channels == 2 else values[..., :3])


@pytest.mark.parametrize("channels", [3, 4])
def test_colours_keep_their_sixteen_bits_under_a_range(channels: int) -> None:
    found = seen(png(VALUES[..., :channels]), RANGE)

    shares = (VALUES[..., :3].astype(np.float64) - 100) / 900
    np.testing.assert_array_equal(found, np.rint(shares.clip(0, 1) * 255))


def test_without_a_range_the_upper_eight_bits_are_seen() -> None:
    np.testing.assert_array_equal(seen(png(VALUES[..., :3]), None), VALUES[..., :3] >> 8)


def test_a_look_finds_the_range_of_dim_colours(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / "dim").mkdir(exist_ok=True)
        (tmp_path / "dim" / f"{number}.png").write_bytes(png(100 + VALUES[..., :3] % 900))

    look = look_at_pixels(dataset_of(tmp_path), DEFAULT_MAX_PIXELS)

    assert look.range is not None
    assert look.num_images == 20
    assert 100 <= look.range.low < 150
    assert 950 < look.range.high < 1000


def test_a_cut_off_file_is_named_as_damaged() -> None:
    with pytest.raises(ImageError, match="cannot be decoded"):
        seen(png(VALUES[..., :3])[:200], RANGE)


def test_eight_bits_stay_what_they_are_under_a_range() -> None:
    buffer = io.BytesIO()
    colours = (VALUES[..., :3] % 256).astype(np.uint8)
    Image.fromarray(colours).save(buffer, "PNG")

    np.testing.assert_array_equal(seen(buffer.getvalue(), RANGE), colours)
