"""Decoding and resizing of images for a model."""

import io
from functools import partial

import numpy as np
import pytest
from PIL import Image

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.base.errors import ImageError, Setting
from difficulty_service.datasets.image_openers import open_bytes
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import Pixels
from difficulty_service.images.preparation import prepare
from tests.tiff_files import tiff
from trainer.data.images import Fit, decode, failure_reason, pixels_of

PREPROCESSING = Preprocessing(8, 8, "bicubic", (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> ImageOpener:
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)
    return partial(open_bytes, buffer.getvalue())


@pytest.fixture
def grey() -> Image.Image:
    return Image.fromarray(np.arange(48, dtype=np.uint8).reshape(6, 8) * 5)


def test_grey_is_repeated_to_three_channels(grey: Image.Image) -> None:
    pixels = pixels_of(decode(encoded(grey)))

    np.testing.assert_array_equal(pixels, np.stack([np.asarray(grey)] * 3))


def test_alpha_is_dropped_not_blended(grey: Image.Image) -> None:
    colours = grey.convert("RGBA")
    colours.putalpha(0)

    pixels = pixels_of(decode(encoded(colours)))

    np.testing.assert_array_equal(pixels[0], np.asarray(grey))


def test_a_palette_with_a_transparent_entry_becomes_its_colours() -> None:
    image = Image.new("P", (4, 4), 1)
    image.putpalette([0, 0, 0, 10, 20, 30])

    pixels = pixels_of(decode(encoded(image, transparency=b"\x00\x80")))

    assert pixels[:, 2, 3].tolist() == [10, 20, 30]


def test_sixteen_bits_are_reduced_to_the_upper_eight() -> None:
    values = np.linspace(0, 65_535, 16, dtype=np.uint16).reshape(4, 4)

    pixels = pixels_of(decode(encoded(Image.fromarray(values))))

    np.testing.assert_array_equal(pixels[1], values >> 8)


def test_of_many_bands_the_remedy_is_a_key_of_the_recipe() -> None:
    data = tiff([np.zeros((6, 8, 13), np.uint16)])

    with pytest.raises(ImageError) as caught:
        decode(partial(open_bytes, data))

    assert failure_reason(caught.value).endswith('choose them as data.bands = "3,2,1"')


def test_images_are_seen_as_the_recipe_says() -> None:
    bands = np.zeros((6, 8, 5), np.uint16)
    bands[..., 4], bands[..., 1] = 1000, 550
    data = partial(open_bytes, tiff([bands]))

    pixels = pixels_of(decode(data, pixels=Pixels(PixelRange(100, 1000), (5, 2, 1))))

    assert pixels[:, 0, 0].tolist() == [255, 128, 0]


def test_exif_orientation_is_applied(grey: Image.Image) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise by a quarter

    pixels = pixels_of(decode(encoded(grey, exif=exif)))

    np.testing.assert_array_equal(pixels[0], np.rot90(np.asarray(grey), -1))


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"no image", "not an image of a known format"),
        (b"\x89PNG\r\n\x1a\n broken", "not a readable PNG image"),
    ],
)
def test_a_file_that_is_not_an_image_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(ImageError, match=reason):
        decode(partial(open_bytes, data))


def test_a_format_that_scoring_refuses_is_refused_for_the_same_reason(grey: Image.Image) -> None:
    icon = encoded(grey, "ICO")
    with pytest.raises(ImageError) as in_scoring:
        prepare(icon, PREPROCESSING)

    with pytest.raises(ImageError, match="not an image of a known format") as in_training:
        decode(icon)

    assert str(in_training.value) == str(in_scoring.value)


def test_an_image_above_the_pixel_limit_is_refused_for_the_same_reason(grey: Image.Image) -> None:
    with pytest.raises(ImageError) as in_scoring:
        prepare(encoded(grey), PREPROCESSING, max_pixels=47)

    with pytest.raises(ImageError, match="8 x 6 pixels are more than the 47 allowed") as caught:
        decode(encoded(grey), max_pixels=47)

    assert str(caught.value) == str(in_scoring.value)


def test_an_image_at_the_pixel_limit_is_decoded(grey: Image.Image) -> None:
    assert decode(encoded(grey), max_pixels=48).size == (8, 6)


def test_a_remedy_names_the_key_of_the_recipe() -> None:
    error = ImageError("too large", "raise ", Setting("max_pixels"), parameter="max_pixels")

    assert failure_reason(error) == "too large; raise data.max_pixels"


def test_a_truncated_image_is_refused() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    data = encoded(Image.fromarray(noise), "JPEG")().read()

    with pytest.raises(ImageError, match="truncated"):
        decode(partial(open_bytes, data[: len(data) // 2]))


def test_an_image_of_the_right_size_is_returned_unchanged(grey: Image.Image) -> None:
    assert Fit(6, 8, margin=1.2).apply(grey) is grey


@pytest.mark.parametrize(("width", "height"), [(80, 40), (40, 80)])
def test_the_shorter_side_is_resized_and_the_centre_kept(width: int, height: int) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)
    image = Image.fromarray(noise)

    fitted = Fit(10, 10).apply(image)

    resized = image.resize((width // 4, height // 4), Image.Resampling.BILINEAR)
    left, top = (width // 4 - 10) // 2, (height // 4 - 10) // 2
    expected = resized.crop((left, top, left + 10, top + 10))
    # One level of rounding: the library may resize rows or columns first.
    np.testing.assert_allclose(pixels_of(fitted).astype(int), pixels_of(expected), atol=1)


def test_a_margin_cuts_the_border_off() -> None:
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    image = Image.fromarray(noise)

    fitted = Fit(14, 14, margin=16 / 14).apply(image)

    expected = image.resize((16, 16), Image.Resampling.BILINEAR).crop((1, 1, 15, 15))
    # One level of rounding: the library may resize rows or columns first.
    np.testing.assert_allclose(pixels_of(fitted).astype(int), pixels_of(expected), atol=1)


def test_another_size_is_refused_where_images_are_not_resized(grey: Image.Image) -> None:
    with pytest.raises(ImageError, match=r"8 x 6 pixels.* 5 x 5; set data.image_size"):
        Fit(5, 5, resizes=False).apply(grey)
