"""TIFF of many bands, bits and pages: what is chosen is shown, and nothing is dropped silently."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.extraction.pixel_look import look_at_pixels
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, decode_to_pil, open_header
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels, known_page, parse_bands
from difficulty_service.images.tiff import pages_of, read_values
from tests.dataset_files import dataset_of
from tests.tiff_files import tiff

ROWS, COLUMNS = 20, 24
RANDOM = np.random.default_rng(0)

Values = NDArray[Any]


def bands_of(number: int, dtype: str) -> Values:
    return (RANDOM.random((ROWS, COLUMNS, number)) * 200).astype(dtype)


def shown(data: bytes, pixels: Pixels | None = None) -> NDArray[np.uint8]:
    image = decode_to_pil(open_header(data), pixels)
    assert image.mode == "RGB"
    return np.asarray(image)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int16", "float32"])
@pytest.mark.parametrize("number", [2, 4, 13])
@pytest.mark.parametrize(
    "layout",
    [
        {},
        {"order": ">"},
        {"separate": True},
        {"deflate": True},
        {"tile": 16},
        {"tile": 16, "separate": True, "deflate": True, "order": ">"},
        {"predictor": 2, "deflate": True},
    ],
    ids=str,
)
def test_all_bands_are_read_as_they_were_written(
    dtype: str, number: int, layout: dict[str, Any]
) -> None:
    if dtype == "float32" and "predictor" in layout:
        pytest.skip("floating-point numbers have another predictor")
    values = bands_of(number, dtype)
    data = tiff([values], **layout)

    read = read_values(data, pages_of(data)[0])

    assert read.dtype == np.dtype(dtype)
    assert (read == values).all()


def test_three_chosen_bands_are_red_green_and_blue() -> None:
    values = bands_of(13, "uint16")

    seen = shown(tiff([values]), Pixels(PixelRange(0, 255), (4, 3, 2)))

    assert (seen == values[:, :, [3, 2, 1]]).all()


def test_a_single_band_is_grey() -> None:
    values = bands_of(5, "uint8")

    assert (shown(tiff([values]), Pixels(bands=(5,))) == values[:, :, [4, 4, 4]]).all()


@pytest.mark.parametrize("dtype", ["uint8", "uint16"])
def test_of_many_bands_nobody_guesses_which_are_colours(dtype: str) -> None:
    with pytest.raises(ImageError, match="13 bands, and nothing says which are red") as caught:
        shown(tiff([bands_of(13, dtype)]))

    assert "choose them as bands='3,2,1'" in str(caught.value)


def test_a_band_that_is_not_there_is_told() -> None:
    with pytest.raises(ImageError, match="it has 4 bands, and no band 9"):
        shown(tiff([bands_of(4, "uint16")]), Pixels(bands=(9, 2, 1)))


def test_colours_of_16_bits_are_scaled_from_the_range() -> None:
    values = bands_of(3, "uint16")

    seen = shown(tiff([values], photometric=2), Pixels(PixelRange(0, 255)))

    assert (seen == values).all()


def test_colours_of_16_bits_without_a_range_keep_their_upper_8() -> None:
    values = (bands_of(3, "uint16") + 1) * 256

    assert (shown(tiff([values], photometric=2)) == values >> 8).all()


@pytest.mark.parametrize(("page", "expected"), [("", 0), ("first", 0), ("middle", 2), ("5", 4)])
def test_a_page_of_a_stack_is_chosen(page: str, expected: int) -> None:
    stack = [bands_of(1, "uint16") for _ in range(5)]

    seen = shown(tiff(stack), Pixels(PixelRange(0, 255), (), page))

    assert (seen[:, :, 0] == stack[expected][:, :, 0]).all()


def test_a_page_that_is_not_there_is_told() -> None:
    with pytest.raises(ImageError, match="it has 2 pages, and no page 3"):
        shown(tiff([bands_of(1, "uint8")] * 2), Pixels(page="3"))


def test_smaller_copies_are_no_pages() -> None:
    data = tiff([bands_of(1, "uint8"), bands_of(1, "uint8")], reduced=True)

    assert len(pages_of(data)) == 1


def test_a_damaged_tiff_of_many_bands_is_refused() -> None:
    data = tiff([bands_of(13, "uint16")])

    for damaged in (data[:60], data[:-2000], data[:8] + bytes(200)):
        with pytest.raises(ImageError):
            shown(damaged, Pixels(bands=(3, 2, 1)))


def test_a_tiff_that_claims_too_much_is_refused() -> None:
    data = tiff([bands_of(1, "float32")])
    page = pages_of(data)[0]
    page.tags[256], page.tags[257], page.tags[277] = 40_000, 40_000, 400

    with pytest.raises(ImageError, match="are more than are read"):
        read_values(data, page)


@pytest.mark.parametrize("text", ["0,1,2", "1,2", "a", "", "1,2,3,4"])
def test_bands_are_one_number_or_three(text: str) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        parse_bands(text)
    assert parse_bands("4, 3,2") == (4, 3, 2)
    assert parse_bands("4") == (4,)


@pytest.mark.parametrize("text", ["0", "second", "", "-1"])
def test_a_page_has_a_name_or_a_number(text: str) -> None:
    with pytest.raises(ValueError, match="counted from 1"):
        known_page(text)


def test_what_was_chosen_is_kept_and_read_again() -> None:
    pixels = Pixels(PixelRange(0, 3000), (4, 3, 2), "middle")

    assert Pixels.of({"size": 224, **pixels.describe()}) == pixels
    assert Pixels.of({"size": 224}) is None
    assert pixels.options() == {"pixel_range": "0:3000", "bands": "4,3,2", "page": "middle"}


def notes(folder: Path, data: bytes, pixels: Pixels | None = None) -> list[str]:
    (folder / "a").mkdir(parents=True)
    for number in range(3):
        (folder / "a" / f"{number}.tif").write_bytes(data)
    dataset = dataset_of(folder)
    return [*look_at_pixels(dataset, DEFAULT_MAX_PIXELS, pixels or Pixels()).notes]


def test_bands_that_are_not_seen_are_told(tmp_path: Path) -> None:
    four = tiff([bands_of(4, "uint8")], photometric=2, extra=0)
    alpha = tiff([bands_of(4, "uint8")], photometric=2, extra=2)
    cmyk = tiff([bands_of(4, "uint8")], photometric=5)
    two = tiff([bands_of(2, "uint8")])

    (said,) = notes(tmp_path / "four", four)
    assert "3 of 3 images that were looked at have 4 bands, of which the first three are" in said
    assert "have 2 bands, of which the first is read" in notes(tmp_path / "two", two)[0]
    assert notes(tmp_path / "alpha", alpha) == []
    assert notes(tmp_path / "cmyk", cmyk) == []  # all four make its colours
    assert notes(tmp_path / "chosen", four, Pixels(bands=(4, 3, 2))) == []


def test_pages_that_are_not_seen_are_told(tmp_path: Path) -> None:
    stack = tiff([bands_of(1, "uint8")] * 3)

    (said,) = notes(tmp_path / "stack", stack)
    assert "have several pages, of which the first is read" in said
    assert notes(tmp_path / "chosen", stack, Pixels(page="middle")) == []


def test_the_range_of_several_bands_is_that_of_the_chosen_ones(tmp_path: Path) -> None:
    values = bands_of(4, "uint16")
    values[:, :, 3] += 5000
    (tmp_path / "a").mkdir()
    for number in range(3):
        (tmp_path / "a" / f"{number}.tif").write_bytes(tiff([values]))
    dataset = dataset_of(tmp_path)

    found = look_at_pixels(dataset, DEFAULT_MAX_PIXELS, Pixels(bands=(3, 2, 1)))

    assert found.range is not None
    assert found.range.high <= 200


@pytest.mark.parametrize("name", ["a.dcm", "a.nii", "a.nii.gz", "a.jp2", "a.svs"])
def test_files_of_other_fields_are_refused_with_what_to_do(tmp_path: Path, name: str) -> None:
    (tmp_path / "scans").mkdir()
    (tmp_path / "scans" / name).write_bytes(bytes(200))

    for location in (tmp_path, tmp_path / "scans", tmp_path / "scans" / name):
        with pytest.raises(DatasetError, match="which is not read; write its values as PNG"):
            dataset_of(location)


@pytest.mark.parametrize("head", [bytes(128) + b"DICM", b"\0\0\0\x0cjP  \r\n\x87\n" + bytes(90)])
def test_their_content_is_told_as_well(head: bytes) -> None:
    with pytest.raises(ImageError, match="which is not read; write its values as PNG"):
        open_header(head)


def test_images_of_8_bits_are_shown_as_before() -> None:
    file = io.BytesIO()
    values = bands_of(3, "uint8")
    Image.fromarray(values).save(file, "TIFF")

    assert (shown(file.getvalue()) == values).all()
    assert (shown(file.getvalue(), Pixels(PixelRange(5, 9))) == values).all()
