"""Photographs that a program holds, and that their EXIF block says how to turn."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageOps

from difficulty_service.datasets.memory import image_opener
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, decode_to_pil, open_header

ORIENTATIONS = range(1, 9)
FORMATS = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "TIFF": "tiff"}


def photograph() -> Image.Image:
    """Three colours in a picture that no turn and no mirror maps to itself."""
    pixels = np.full((32, 48, 3), (200, 40, 40), np.uint8)
    pixels[:16, :16] = (40, 200, 40)
    pixels[16:, 40:] = (40, 40, 200)
    return Image.fromarray(pixels)


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    return exif


def saved(path: Path, orientation: int, mode: str = "RGB") -> Path:
    """A photograph on disk, in the format of the ending."""
    options = {"lossless": True} if path.suffix == ".webp" else {}
    photograph().convert(mode).save(path, exif=exif_of(orientation), **options)
    return path


def from_disk(path: Path) -> NDArray[np.uint8]:
    return np.asarray(decode_to_pil(open_header(path.read_bytes(), DEFAULT_MAX_PIXELS)))


def from_memory(image: object) -> NDArray[np.uint8]:
    with image_opener(image)() as file:
        return np.asarray(decode_to_pil(open_header(file.read(), DEFAULT_MAX_PIXELS)))


@pytest.mark.parametrize("ending", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
def test_an_image_in_memory_is_turned_as_that_of_its_file(
    tmp_path: Path, ending: str, orientation: int
) -> None:
    path = saved(tmp_path / f"photograph.{ending}", orientation)

    with Image.open(path) as image:
        in_memory = from_memory(image)

    np.testing.assert_array_equal(in_memory, from_disk(path))
    upright = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
    np.testing.assert_array_equal(in_memory, np.asarray(upright))


@pytest.mark.parametrize("ending", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("orientation", ORIENTATIONS)
@pytest.mark.parametrize(
    "hold",
    [
        Image.Image.copy,
        lambda image: image.convert("RGB"),
        lambda image: image.convert("RGBA"),
        lambda image: image.convert("HSV"),
        lambda image: image.resize(image.size),
        lambda image: image.crop((0, 0, *image.size)),
        ImageOps.exif_transpose,
        lambda image: ImageOps.exif_transpose(image).convert("RGB"),
    ],
    ids=("copy", "RGB", "RGBA", "HSV", "resize", "crop", "transposed", "transposed to RGB"),
)
def test_an_image_that_was_converted_or_turned_upright_is_turned_once(
    tmp_path: Path, ending: str, orientation: int, hold: Callable[[Image.Image], Image.Image]
) -> None:
    path = saved(tmp_path / f"photograph.{ending}", orientation)

    in_memory = from_memory(hold(Image.open(path)))

    # Which colour model lies between costs a few levels, and not a turn.
    expected = from_disk(path)
    assert in_memory.shape == expected.shape
    assert np.abs(in_memory.astype(int) - expected).mean() < 10


def test_an_image_of_four_inks_is_turned(tmp_path: Path) -> None:
    path = saved(tmp_path / "photograph.jpg", 6, "CMYK")

    np.testing.assert_array_equal(from_memory(Image.open(path)), from_disk(path))


def test_an_image_whose_tag_was_taken_out_is_left_as_it_is(tmp_path: Path) -> None:
    image = Image.open(saved(tmp_path / "photograph.png", 6))
    turned = image.transpose(Image.Transpose.ROTATE_270)
    del turned.getexif()[ExifTags.Base.Orientation]

    np.testing.assert_array_equal(from_memory(turned), from_disk(tmp_path / "photograph.png"))


def test_a_block_behind_the_pixels_of_a_png_is_found(tmp_path: Path) -> None:
    path = saved(tmp_path / "photograph.png", 6)
    data = path.read_bytes()
    start = data.index(b"eXIf") - 4
    end = start + 12 + int.from_bytes(data[start : start + 4], "big")
    last = data.index(b"IEND") - 4
    path.write_bytes(data[:start] + data[end:last] + data[start:end] + data[last:])

    np.testing.assert_array_equal(from_memory(Image.open(path)), from_disk(path))
    assert from_disk(path).shape == (48, 32, 3)


def test_an_image_without_a_block_or_with_a_damaged_one_is_left_as_it_is() -> None:
    plain, damaged = photograph(), photograph()
    damaged.info["exif"] = b"Exif\0\0II*\0\xff\xff"

    for image in (plain, damaged):
        np.testing.assert_array_equal(from_memory(image), np.asarray(photograph()))


def test_a_decoded_column_of_datasets_is_turned_once(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    path = saved(tmp_path / "photograph.jpg", 6)
    table = datasets.Dataset.from_dict({"image": [{"bytes": path.read_bytes(), "path": None}]})
    column = table.cast_column("image", datasets.Image())

    np.testing.assert_array_equal(from_memory(column[0]["image"]), from_disk(path))


def test_an_image_of_torchvision_is_turned(tmp_path: Path) -> None:
    torchvision = pytest.importorskip("torchvision")
    (tmp_path / "class").mkdir()
    path = saved(tmp_path / "class" / "photograph.jpg", 6)

    image, _ = torchvision.datasets.ImageFolder(str(tmp_path))[0]

    np.testing.assert_array_equal(from_memory(image), from_disk(path))
