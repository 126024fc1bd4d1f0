"""HEIC images: decoded with pillow-heif, and refused with the command that installs it."""

import io
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from PIL import ExifTags, Image

from difficulty_service.base.errors import ImageError
from difficulty_service.images import header
from difficulty_service.images.header import decode_to_pil, open_header, read_encoded

HEIGHT, WIDTH = 96, 128


@pytest.fixture
def quarters() -> Image.Image:
    """An image that is white in its upper left quarter and black elsewhere."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    pixels[: HEIGHT // 2, : WIDTH // 2] = 255
    return Image.fromarray(pixels)


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    header.plugins.cache_clear()
    yield
    header.plugins.cache_clear()


def encode(image: Image.Image, orientation: int = 1) -> bytes:
    heif = pytest.importorskip("pillow_heif", reason="the package pillow-heif is optional")
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    file = heif.from_pillow(image)
    file.info["exif"] = exif.tobytes()
    buffer = io.BytesIO()
    file.save(buffer, quality=-1, chroma=444)
    return buffer.getvalue()


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA"])
def test_a_heic_image_gives_its_pixels(quarters: Image.Image, mode: str) -> None:
    data = encode(quarters.convert(mode))

    decoded = decode_to_pil(open_header(read_encoded(lambda: io.BytesIO(data))))

    assert decoded.mode == "RGB"
    difference = np.asarray(decoded).astype(int) - np.asarray(quarters)
    assert np.abs(difference).max() <= 2


def test_the_rotation_of_the_container_is_applied_once(quarters: Image.Image) -> None:
    data = encode(quarters, orientation=6)
    assert b"irot" in data

    decoded = decode_to_pil(open_header(data))

    expected = np.asarray(quarters.transpose(Image.Transpose.ROTATE_270))
    assert np.abs(np.asarray(decoded).astype(int) - expected).max() <= 2


def test_the_pixel_limit_holds_before_anything_is_decoded(quarters: Image.Image) -> None:
    data = encode(quarters)

    with pytest.raises(ImageError, match="128 x 96 pixels are more than the 12287 allowed"):
        open_header(data, max_pixels=WIDTH * HEIGHT - 1)


@pytest.mark.parametrize("share", [0.01, 0.1, 0.5, 0.99])
def test_a_truncated_heic_image_has_a_reason_of_one_line(
    quarters: Image.Image, share: float
) -> None:
    data = encode(quarters)

    with pytest.raises(ImageError) as caught:
        decode_to_pil(open_header(data[: int(len(data) * share)]))

    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("brand", [b"heic", b"hevc", b"mif1"])
@pytest.mark.usefixtures("without_package")
def test_without_the_package_the_reason_names_the_extra(brand: bytes) -> None:
    data = b"\0\0\0\x18ftyp" + brand + b"\0\0\0\0mif1heic" + b"\0" * 100

    with pytest.raises(ImageError, match=r"pip install 'difficulty-service\[heic\]'"):
        read_encoded(lambda: io.BytesIO(data))


@pytest.mark.parametrize(
    "data",
    [
        b"\0\0\0\x18ftypavif\0\0\0\0mif1miaf",
        b"\0\0\0\x1cftypmif1\0\0\0\0mif1avifmiaf",
        b"\0\0\0\x14ftypqt  \0\0\0\0heic",
        b"heic",
    ],
)
def test_other_files_of_the_same_container_are_not_taken_for_heic(data: bytes) -> None:
    assert not header.is_heif(data)
