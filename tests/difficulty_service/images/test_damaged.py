"""Files that are not images, are damaged, or are made to exhaust the memory."""

import io
import resource
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO

import numpy as np
import pytest
from PIL import Image
from torchvision.transforms.v2.functional import get_size

from difficulty_service.base.errors import ImageError
from difficulty_service.images.modes import Mode
from difficulty_service.images.preparation import read_image

pytestmark = pytest.mark.parametrize("mode", ["fast", "exact"])

PIXELS = np.random.default_rng(0).integers(0, 256, (120, 160, 3), dtype=np.uint8)
MEBIBYTE = 1024  # ru_maxrss counts kibibytes


def save(file_format: str, image: Image.Image | None = None, **options: object) -> bytes:
    buffer = io.BytesIO()
    (image or Image.fromarray(PIXELS)).save(buffer, file_format, **options)
    return buffer.getvalue()


def png_header(width: int, height: int) -> bytes:
    """A well-formed PNG of this size in very few bytes."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)),
        (b"IDAT", zlib.compress(bytes(1000))),
        (b"IEND", b""),
    ]
    body = b"".join(
        struct.pack(">I", len(content))
        + name
        + content
        + struct.pack(">I", zlib.crc32(name + content))
        for name, content in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + body


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "the file is empty"),
        (b"hello, this is text", "not an image of a known format .* b'hello, t'"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "not an image of a known format"),
        (b"\x00", "not an image of a known format"),
        (b"\xff\xd8\xff", "not a readable JPEG image"),
        (b"\x89PNG\r\n\x1a\n", "not a readable PNG image"),
        (b"II*\x00" + bytes(60), "not a readable TIFF image"),
        (b"P6 12 banana", "not a readable PPM image"),
        (b"RIFF\x00\x00\x00\x00WEBPVP8 ", "not a readable WEBP image"),
    ],
)
def test_a_file_that_is_not_an_image_is_refused_with_a_reason(
    mode: Mode, data: bytes, reason: str
) -> None:
    with pytest.raises(ImageError, match=reason) as caught:
        read_image(lambda: io.BytesIO(data), mode)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "file_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"]
)
@pytest.mark.parametrize("kept", [0.1, 0.5, 0.9])
def test_a_truncated_image_is_refused(mode: Mode, file_format: str, kept: float) -> None:
    whole = save(file_format)
    data = whole[: int(len(whole) * kept)]

    with pytest.raises(ImageError) as caught:
        read_image(lambda: io.BytesIO(data), mode)

    assert "\n" not in str(caught.value)


def test_damage_anywhere_gives_an_image_or_an_image_error(mode: Mode) -> None:
    rng = np.random.default_rng(1)
    small = Image.fromarray(PIXELS[:24, :24])
    outcomes = set()

    for file_format in ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"):
        whole = save(file_format, small)
        for _ in range(40):
            data = bytearray(whole)
            for position in rng.integers(0, len(data), 4):
                data[position] = rng.integers(0, 256)
            try:
                read_image(lambda data=bytes(data): io.BytesIO(data), mode)
                outcomes.add("image")
            except ImageError:
                outcomes.add("error")

    assert outcomes == {"image", "error"}


def test_a_bomb_is_refused_by_its_header_without_allocating(mode: Mode) -> None:
    data = png_header(20_000, 20_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    with pytest.raises(ImageError, match="20000 x 20000 pixels are more than the 50000000"):
        read_image(lambda: io.BytesIO(data), mode)

    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 * MEBIBYTE


@pytest.mark.parametrize(
    "file_format", ["JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "AVIF"]
)
def test_the_pixel_limit_applies_to_every_format(mode: Mode, file_format: str) -> None:
    data = save(file_format)

    with pytest.raises(
        ImageError, match="160 x 120 pixels are more than the 19199 allowed; raise max_pixels if"
    ) as caught:
        read_image(lambda: io.BytesIO(data), mode, max_pixels=19_199)

    assert caught.value.parameter == "max_pixels"


@pytest.mark.parametrize(("width", "height"), [(1, 65_501), (65_501, 1)])
def test_a_side_that_takes_memory_for_each_row_is_refused(
    mode: Mode, width: int, height: int
) -> None:
    with pytest.raises(ImageError, match=f"{width} x {height} pixels: a side is longer than the"):
        read_image(lambda: io.BytesIO(png_header(width, height)), mode)


def test_an_image_of_exactly_the_pixel_limit_is_read(mode: Mode) -> None:
    data = save("PNG")

    image = read_image(lambda: io.BytesIO(data), mode, max_pixels=19_200)

    assert get_size(image) == [120, 160]


def test_a_raised_limit_overrides_the_limit_of_pil(mode: Mode) -> None:
    side = 13_400  # PIL itself refuses beyond 178,956,970 pixels.
    data = png_header(side, side)

    with pytest.raises(ImageError, match=r"truncated|cannot be decoded"):
        read_image(lambda: io.BytesIO(data), mode, max_pixels=side * side)


class Endless(io.RawIOBase):
    """A file that reports a given size and counts the bytes that are read."""

    def __init__(self, size: int) -> None:
        self.size, self.taken = size, 0

    def seek(self, offset: int, whence: int = 0) -> int:
        """Returns the given size for the end of the file."""
        return self.size if whence == 2 else offset

    def read(self, size: int = -1) -> bytes:
        """Returns zeros and counts them."""
        self.taken += size
        return bytes(size)


def test_a_file_too_large_for_any_allowed_image_is_not_read(mode: Mode) -> None:
    file = Endless(17 << 20)

    with pytest.raises(ImageError, match="17825792 bytes, more than the 16785216 allowed"):
        read_image(lambda: file, mode, max_pixels=1000)

    assert file.taken == 0


def test_only_the_first_bytes_of_a_large_file_that_is_not_an_image_are_read(mode: Mode) -> None:
    file = Endless(300 << 20)

    with pytest.raises(ImageError, match=r"not an image|perhaps a DICOM file"):
        read_image(lambda: file, mode)

    assert file.taken == 64


def test_a_read_error_is_an_image_error(mode: Mode) -> None:
    def opener() -> BinaryIO:
        raise OSError(5, "Input/output error")

    with pytest.raises(ImageError, match=r"cannot be read: .*Input/output error"):
        read_image(opener, mode)


def test_odd_metadata_raises_no_warning_in_any_thread(mode: Mode) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01"
    image = Image.fromarray(PIXELS).quantize(16)
    files = [save("JPEG", exif=exif), save("PNG", image, transparency=bytes(16))] * 20

    with warnings.catch_warnings(record=True) as caught, ThreadPoolExecutor(4) as pool:
        warnings.simplefilter("always")
        list(pool.map(lambda data: read_image(lambda: io.BytesIO(data), mode), files))

    assert caught == []
