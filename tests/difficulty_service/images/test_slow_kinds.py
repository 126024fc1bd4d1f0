"""Small files that would take minutes to decode are refused before they are decoded."""

import io
import struct
from functools import partial

import pytest
from PIL import Image

from difficulty_service.base.errors import ImageError
from difficulty_service.images.preparation import read_image


def progressive_jpeg(size: tuple[int, int], extra_scans: int = 0) -> bytes:
    """A progressive JPEG whose last scan, which refines all pixels, is repeated."""
    file = io.BytesIO()
    Image.new("RGB", size, (90, 120, 30)).save(file, "JPEG", progressive=True)
    data = file.getvalue()
    last_scan = data[data.rindex(b"\xff\xda") : -2]
    return data[:-2] + last_scan * extra_scans + data[-2:]


def run_length_bmp(width: int, height: int) -> bytes:
    """A grey BMP in which each row is one run."""
    pixels = (bytes([255, 7]) * (width // 255) + bytes([width % 255, 7, 0, 0])) * height + b"\0\1"
    start = 14 + 40 + 1024
    header = b"BM" + struct.pack("<IHHI", start + len(pixels), 0, 0, start)
    fields = (40, width, height, 1, 8, 1, len(pixels), 2835, 2835, 256, 0)
    return header + struct.pack("<IiiHHIIiiII", *fields) + bytes(1024) + pixels


def test_a_progressive_photograph_is_read() -> None:
    data = progressive_jpeg((64, 48))

    assert data.count(b"\xff\xda") == 10
    assert read_image(partial(io.BytesIO, data)).shape == (3, 48, 64)


def test_a_progressive_jpeg_with_thousands_of_scans_is_refused() -> None:
    data = progressive_jpeg((4000, 4000), extra_scans=1000)
    assert len(data) < 10_000_000

    with pytest.raises(ImageError, match="1010 scans, more than the 100 allowed"):
        read_image(partial(io.BytesIO, data))


def test_a_baseline_jpeg_may_contain_what_looks_like_scans() -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 48)).save(file, "JPEG", comment=b"\xff\xda" * 200)

    assert read_image(partial(io.BytesIO, file.getvalue())).shape == (3, 48, 64)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"P3 3000 3000 255\n" + b"1 2 3 " * 1000, "a PPM with numbers as text"),
        (run_length_bmp(3000, 3000), "a run-length coded BMP"),
    ],
)
def test_large_images_of_which_python_decodes_each_pixel_are_refused(
    data: bytes, kind: str
) -> None:
    with pytest.raises(ImageError, match=f"{kind} with 3000 x 3000 pixels"):
        read_image(partial(io.BytesIO, data))


def test_small_images_of_these_kinds_are_read() -> None:
    for data in (b"P3 2 1 255\n1 2 3 4 5 6\n", run_length_bmp(300, 2)):
        assert len(read_image(partial(io.BytesIO, data))) == 3
