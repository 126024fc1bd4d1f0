"""Each kind of image in all modes, pixel by pixel; that of a GPU on the CPU, which is `fast`."""

import io
import struct
import sys
import zlib
from collections.abc import Callable

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from difficulty_service.images import preparation
from difficulty_service.images.modes import Mode
from difficulty_service.images.preparation import decoder_name, read_image

pytestmark = pytest.mark.parametrize("mode", ["fast", "exact", "gpu"])

HEIGHT, WIDTH = 11, 17
RNG = np.random.default_rng(0)
PIXELS = RNG.integers(0, 256, (HEIGHT, WIDTH, 3), dtype=np.uint8)
GREY = PIXELS[:, :, 0]
ALPHA = PIXELS[:, :, 1]
WIDE = RNG.integers(0, 65_536, (HEIGHT, WIDTH), dtype=np.uint16)


def save(image: Image.Image, file_format: str, **options: object) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, file_format, **options)
    return buffer.getvalue()


def read(data: bytes, mode: Mode) -> NDArray[np.uint8]:
    """The decoded pixels. Shape (height, width, 3)."""
    image = read_image(lambda: io.BytesIO(data), mode)
    if isinstance(image, Tensor):
        assert image.dtype == torch.uint8
        return image.permute(1, 2, 0).numpy()
    assert image.mode == "RGB"
    return np.asarray(image)


def repeated(grey: NDArray[np.uint8]) -> NDArray[np.uint8]:
    return np.repeat(grey[:, :, None], 3, axis=2)


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        ("PNG", {}),
        ("WEBP", {"lossless": True}),
        ("BMP", {}),
        ("TIFF", {}),
        ("TIFF", {"compression": "tiff_lzw"}),
        ("PPM", {}),
    ],
)
def test_lossless_colour_is_unchanged(
    mode: Mode, file_format: str, options: dict[str, object]
) -> None:
    data = save(Image.fromarray(PIXELS), file_format, **options)

    assert (read(data, mode) == PIXELS).all()


@pytest.mark.parametrize(
    ("file_format", "kind"),
    [("JPEG", "RGB"), ("JPEG", "L"), ("JPEG", "CMYK"), ("WEBP", "RGB"), ("AVIF", "RGB")],
)
def test_lossy_formats_give_the_pixels_that_pil_gives(
    mode: Mode, file_format: str, kind: str
) -> None:
    data = save(Image.fromarray(PIXELS).convert(kind), file_format)

    expected = np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    assert (read(data, mode) == expected).all()


@pytest.mark.parametrize("file_format", ["PNG", "GIF", "BMP", "TIFF", "PPM"])
def test_grey_is_repeated_to_three_channels(mode: Mode, file_format: str) -> None:
    data = save(Image.fromarray(GREY), file_format)

    assert (read(data, mode) == repeated(GREY)).all()


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "PPM"])
def test_black_and_white_becomes_0_and_255(mode: Mode, file_format: str) -> None:
    data = save(Image.fromarray(GREY > 127), file_format)

    assert (read(data, mode) == repeated((GREY > 127) * np.uint8(255))).all()


@pytest.mark.parametrize(
    ("file_format", "options"),
    [("PNG", {}), ("TIFF", {}), ("WEBP", {"lossless": True, "exact": True})],
)
def test_alpha_is_dropped_and_not_blended(
    mode: Mode, file_format: str, options: dict[str, object]
) -> None:
    data = save(Image.fromarray(np.dstack([PIXELS, ALPHA])), file_format, **options)

    assert (read(data, mode) == PIXELS).all()


@pytest.mark.parametrize("file_format", ["PNG", "TIFF"])
def test_grey_with_alpha_is_grey(mode: Mode, file_format: str) -> None:
    data = save(Image.fromarray(np.dstack([GREY, ALPHA])), file_format)

    assert (read(data, mode) == repeated(GREY)).all()


@pytest.mark.parametrize(
    ("file_format", "options"),
    [
        ("PNG", {}),
        ("PNG", {"transparency": 3}),
        ("PNG", {"transparency": bytes(range(100))}),
        ("GIF", {"transparency": 3}),
        ("BMP", {}),
        ("TIFF", {}),
    ],
)
def test_palette_colours_are_looked_up(
    mode: Mode, file_format: str, options: dict[str, object]
) -> None:
    image = Image.fromarray(PIXELS).quantize(64)
    data = save(image, file_format, **options)

    assert (read(data, mode) == np.asarray(image.convert("RGB"))).all()


@pytest.mark.parametrize("file_format", ["PNG", "TIFF", "PPM"])
def test_the_upper_8_of_16_bits_are_kept(mode: Mode, file_format: str) -> None:
    data = save(Image.fromarray(WIDE), file_format)

    assert (read(data, mode) == repeated((WIDE >> 8).astype(np.uint8))).all()


def test_big_endian_16_bit_tiff_is_scaled_like_the_others(mode: Mode) -> None:
    data = save(Image.frombytes("I;16B", (WIDTH, HEIGHT), WIDE.astype(">u2").tobytes()), "TIFF")

    assert (read(data, mode) == repeated((WIDE >> 8).astype(np.uint8))).all()


def test_colour_of_16_bits_keeps_the_upper_8(mode: Mode) -> None:
    wide = RNG.integers(0, 65_536, (HEIGHT, WIDTH, 3), dtype=np.uint16)
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in wide)
    data = png(bit_depth=16, colour_type=2, rows=rows)

    assert (read(data, mode) == wide >> 8).all()


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_values_without_a_range_are_stretched_from_black_to_white(
    mode: Mode, dtype: type[np.generic]
) -> None:
    values = np.linspace(-7000, 9000, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(dtype)
    data = save(Image.fromarray(values), "TIFF")

    grey = read(data, mode)

    expected = np.rint((values.astype(np.float64) + 7000) / 16_000 * 255)
    assert np.abs(grey - repeated(expected)).max() <= 1
    assert (grey.min(), grey.max()) == (0, 255)


def test_a_floating_point_image_ignores_its_undefined_pixels(mode: Mode) -> None:
    values = np.array([[0.0, 0.5, 1.0, np.nan, np.inf]], dtype=np.float32)
    data = save(Image.fromarray(values), "TIFF")

    assert read(data, mode)[0, :, 0].tolist() == [0, 128, 255, 0, 255]


@pytest.mark.parametrize("file_format", ["GIF", "PNG", "WEBP", "TIFF", "AVIF"])
def test_the_first_frame_of_an_animation_is_used(mode: Mode, file_format: str) -> None:
    first, second = Image.new("RGB", (WIDTH, HEIGHT), "red"), Image.new("RGB", (WIDTH, HEIGHT))
    data = save(first, file_format, save_all=True, append_images=[second])

    assert np.abs(read(data, mode).astype(int) - [255, 0, 0]).max() <= 3


def test_the_first_image_of_a_multi_picture_jpeg_is_used(mode: Mode) -> None:
    first, second = Image.new("RGB", (WIDTH, HEIGHT), "red"), Image.new("RGB", (WIDTH, HEIGHT))
    data = save(first, "MPO", save_all=True, append_images=[second])

    assert np.abs(read(data, mode).astype(int) - [255, 0, 0]).max() <= 3


@pytest.mark.parametrize("orientation", range(10))
@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP", "AVIF", "TIFF"])
def test_exif_orientation_is_applied(mode: Mode, file_format: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = save(Image.fromarray(PIXELS), file_format, exif=exif)

    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert (read(data, mode) == np.asarray(expected.convert("RGB"))).all()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_orientation_of_a_png_may_follow_its_pixels(mode: Mode, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    block = chunk(b"eXIf", exif.tobytes().removeprefix(b"Exif\0\0"))
    rows = b"".join(b"\0" + row.tobytes() for row in PIXELS)
    data = png(bit_depth=8, colour_type=2, rows=rows, after=block)

    expected = ImageOps.exif_transpose(Image.open(io.BytesIO(data)))
    assert (read(data, mode) == np.asarray(expected)).all()


def test_an_orientation_in_xmp_alone_is_ignored(mode: Mode) -> None:
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf tiff:Orientation="6"/></x:xmpmeta>'
    data = save(Image.fromarray(PIXELS), "JPEG", xmp=xmp)

    assert read(data, mode).shape == PIXELS.shape


@pytest.mark.parametrize("file_format", ["JPEG", "PNG", "WEBP"])
def test_a_damaged_exif_block_means_upright(mode: Mode, file_format: str) -> None:
    exif = b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01"
    data = save(Image.fromarray(PIXELS), file_format, exif=exif)

    assert read(data, mode).shape == PIXELS.shape


def test_a_bad_colour_profile_prints_no_warning(
    mode: Mode, capfd: pytest.CaptureFixture[str]
) -> None:
    rows = b"".join(b"\0" + row.tobytes() for row in PIXELS)
    profile = b"icc\0\0" + zlib.compress(b"no profile at all")
    data = png(bit_depth=8, colour_type=2, rows=rows, before=chunk(b"iCCP", profile))

    pixels = read(data, mode)

    assert (pixels == PIXELS).all()
    assert capfd.readouterr() == ("", "")


def test_pixels_are_the_same_without_torchcodec(
    mode: Mode, without_torchcodec: Callable[[], None]
) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = save(Image.fromarray(PIXELS), "JPEG", exif=exif)
    before = read(data, mode)

    without_torchcodec()
    after = read(data, mode)

    assert decoder_name("fast").startswith("pillow ")
    assert (before == after).all()


@pytest.fixture
def without_torchcodec(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Callable[[], None]:
    """Makes the import of torchcodec fail until the end of the test."""

    def hide() -> None:
        monkeypatch.setitem(sys.modules, "torchcodec.decoders", None)
        preparation.torchcodec_decoder.cache_clear()
        request.addfinalizer(preparation.torchcodec_decoder.cache_clear)

    return hide


def chunk(name: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(name + content)
    return struct.pack(">I", len(content)) + name + content + struct.pack(">I", checksum)


def png(
    *, bit_depth: int, colour_type: int, rows: bytes, before: bytes = b"", after: bytes = b""
) -> bytes:
    """A PNG of kinds that PIL does not write."""
    header = struct.pack(">IIBBBBB", WIDTH, HEIGHT, bit_depth, colour_type, 0, 0, 0)
    return b"".join(
        [
            b"\x89PNG\r\n\x1a\n",
            chunk(b"IHDR", header),
            before,
            chunk(b"IDAT", zlib.compress(rows)),
            after,
            chunk(b"IEND", b""),
        ]
    )
