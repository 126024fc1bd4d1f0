"""Images of more than eight bits a channel: one range for all, and what was not measured."""

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image, TiffImagePlugin

from difficulty_service.base.errors import ImageError
from difficulty_service.extraction.pixel_look import LOOKED_AT, look_at_pixels
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, decode_to_pil, open_header
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels
from tests.dataset_files import dataset_of

WIDE = np.array([[0, 100, 175, 250, 4000]], np.uint16)
GREY = [0, 0, 128, 255, 255]
RANGE = PixelRange(100, 250)


def encode(values: NDArray[np.generic], form: str = "TIFF", **tags: object) -> bytes:
    buffer = io.BytesIO()
    options = {}
    if tags:
        directory = TiffImagePlugin.ImageFileDirectory_v2()
        directory[42113] = str(tags["no_data"])
        options["tiffinfo"] = directory
    Image.fromarray(values).save(buffer, form, **options)
    return buffer.getvalue()


def decode(data: bytes, pixel_range: PixelRange | None) -> list[int]:
    image = decode_to_pil(open_header(data), pixel_range and Pixels(pixel_range))
    assert image.mode == "RGB"
    return [int(each) for each in np.asarray(image)[0, :, 0]]


def swapped(data: bytes) -> bytes:
    """A TIFF in which 0 is white."""
    tag, one, zero = (struct.pack("<HHIHH", 262, 3, 1, value, 0) for value in (1, 1, 0))
    assert data.count(one) == 1
    return data.replace(tag, zero)


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_values_of_16_bits_are_scaled_from_the_range(form: str) -> None:
    assert decode(encode(WIDE, form), RANGE) == GREY


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_values_of_32_bits_are_scaled_from_the_same_range_in_every_image(
    dtype: type[np.generic],
) -> None:
    values = WIDE.astype(dtype)

    assert decode(encode(values), RANGE) == GREY
    assert decode(encode(values[:, 1:3]), RANGE) == GREY[1:3]


def test_images_of_8_bits_stay_what_they_are() -> None:
    grey = np.arange(256, dtype=np.uint8).reshape(1, 256)

    assert decode(encode(grey, "PNG"), RANGE) == grey[0].tolist()


@pytest.mark.parametrize("missing", [-9999, -32768, -3.4e38, np.nan])
def test_what_was_not_measured_is_black_and_darkens_nothing_else(missing: float) -> None:
    values = np.array([[missing, 10, 20, 30]], np.float32)
    data = encode(values)

    assert decode(data, None) == [0, 0, 128, 255]
    assert decode(data, PixelRange(10, 30)) == [0, 0, 128, 255]


def test_the_tag_of_gdal_says_what_was_not_measured() -> None:
    data = encode(np.array([[1.0, 10, 20, 30, 500]], np.float32), no_data=500)

    assert decode(data, None) == [0, 79, 167, 255, 0]
    assert decode(data, PixelRange(0, 100)) == [3, 26, 51, 76, 0]


def test_an_image_without_any_measured_value_is_refused() -> None:
    with pytest.raises(ImageError, match="no pixel has a finite value that was measured"):
        decode(encode(np.full((2, 2), -9999, np.float32)), None)


@pytest.mark.parametrize("pixel_range", [None, PixelRange(0, 65535)])
def test_a_tiff_in_which_0_is_white_is_no_negative(pixel_range: PixelRange | None) -> None:
    data = encode(np.array([[0, 65535]], np.uint16))

    assert decode(swapped(data), pixel_range) == [255, 0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0:4095", (0, 4095)), (" -1000:400 ", (-1000, 400)), ("1e-3:.5", (0.001, 0.5))],
)
def test_a_range_is_two_numbers(text: str, expected: tuple[float, float]) -> None:
    parsed = PixelRange.parse(text)

    assert (parsed.low, parsed.high) == expected
    assert PixelRange.parse(str(parsed)) == parsed
    assert PixelRange.of(parsed.describe()) == parsed


@pytest.mark.parametrize("text", ["", "5", "5:", "9:5", "5:5", "a:b", "nan:5", "0:inf"])
def test_anything_else_is_no_range(text: str) -> None:
    with pytest.raises(ValueError, match="is not LOW:HIGH"):
        PixelRange.parse(text)


Make = Callable[[int], NDArray[np.generic]]


def look(folder: Path, make: Make, number: int = 100) -> PixelRange | None:
    (folder / "a").mkdir(parents=True)
    for each in range(number):
        values = make(each)
        Image.fromarray(values).save(folder / "a" / f"{each:03}.tif")
    dataset = dataset_of(folder)
    return look_at_pixels(dataset, DEFAULT_MAX_PIXELS).range


def noise(low: float, high: float, dtype: type[np.generic]) -> Make:
    random = np.random.default_rng(0)
    return lambda _: (low + random.random((32, 32)) * (high - low)).astype(dtype)


def test_a_look_finds_the_range_that_the_images_use(tmp_path: Path) -> None:
    found = look(tmp_path, noise(100, 1000, np.uint16))

    assert found is not None
    assert found.low == pytest.approx(100, abs=5)
    assert found.high == pytest.approx(1000, abs=5)


def test_what_was_not_measured_is_not_in_the_range(tmp_path: Path) -> None:
    plain = noise(-1, 1, np.float32)

    def make(number: int) -> NDArray[np.generic]:
        values = plain(number)
        values[:8] = -9999
        return values

    found = look(tmp_path, make)

    assert found is not None
    assert found.low == pytest.approx(-1, abs=0.02)


def test_a_few_images_with_other_values_do_not_widen_the_range(tmp_path: Path) -> None:
    plain = noise(100, 1000, np.uint16)

    found = look(tmp_path, lambda number: plain(number) * (30 if number == 50 else 1))

    assert found is not None
    assert found.high < 1100


def test_integers_that_span_16_bits_need_no_range(tmp_path: Path) -> None:
    assert look(tmp_path, noise(0, 65535, np.uint16)) is None


def test_images_of_8_bits_need_no_range(tmp_path: Path) -> None:
    assert look(tmp_path, noise(0, 200, np.uint8)) is None


def test_a_few_images_of_16_bits_among_others_choose_no_range(tmp_path: Path) -> None:
    wide, plain = noise(100, 1000, np.uint16), noise(0, 200, np.uint8)

    assert look(tmp_path, lambda number: (plain if number % 3 else wide)(number)) is None


def test_a_dataset_smaller_than_a_look_is_looked_at_whole(tmp_path: Path) -> None:
    assert LOOKED_AT > 3
    assert look(tmp_path, noise(100, 1000, np.uint16), number=3) is not None
