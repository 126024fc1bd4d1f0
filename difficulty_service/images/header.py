"""Reads one encoded image: its header, and with PIL its pixels, as upright RGB of eight bits.

Images are refused by their header that would take minutes to decode, although they have few bytes
or pixels. Imports no torch.
"""

import contextlib
import functools
import importlib
import io
import logging
import os
import struct
import warnings
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile

from difficulty_service.base.errors import ImageError, Setting
from difficulty_service.base.extras import pip_command
from difficulty_service.images.opener import ImageOpener
from difficulty_service.images.pixel_range import (
    NO_DATA_TAG,
    PixelRange,
    is_unsigned,
    is_white_zero,
    is_wide,
    require_measured,
)
from difficulty_service.images.pixels import Pixels, to_bytes
from difficulty_service.images.png import is_deep
from difficulty_service.images.png import read_values as read_deep
from difficulty_service.images.tiff import (
    BandsFile,
    chosen_bands,
    page_number,
    pages_of,
    read_values,
    upright,
)

MAX_SCANS = 100
"""Scans of a progressive JPEG, each of which passes over all pixels; cameras write about ten."""

START_OF_SCAN = b"\xff\xda"

MAX_INTERPRETED_PIXELS = 4_000_000
"""Pixels of an image whose decoder is written in Python; one million take a second or two."""

INTERPRETED = {"ppm_plain": "a PPM with numbers as text", "bmp_rle": "a run-length coded BMP"}
"""Names of those decoders in PIL, and of the images for people."""


def refuse_slow(data: bytes, header: ImageFile.ImageFile) -> None:
    """Checks an image before it is decoded; one that is slow by accident is among the refused."""
    if "progressive" in header.info:
        # Inside a scan 0xFF is escaped; the only others are those of an embedded preview.
        scans = data.count(START_OF_SCAN)
        if scans > MAX_SCANS:
            raise ImageError(
                f"a progressive JPEG with {scans} scans, more than the {MAX_SCANS} allowed",
                "save it again, as any program that shows it can",
            )
    tiles = getattr(header, "tile", [])
    kind = INTERPRETED.get(str(tiles[0][0])) if tiles else None
    width, height = header.size
    if kind is not None and width * height > MAX_INTERPRETED_PIXELS:
        raise ImageError(
            f"{kind} with {width} x {height} pixels, more than the {MAX_INTERPRETED_PIXELS} "
            "allowed for this kind",
            "save it as PNG",
        )


FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF", "PPM", "HEIF", "AVIF")
DEFAULT_MAX_PIXELS = 50_000_000
MAX_SIDE = 65_500
"""Maximum number of pixels of a side, which is that of JPEG: PIL needs memory for each row."""

BYTES_PER_PIXEL = 8
METADATA_BYTES = 16 << 20
SIGNATURE_BYTES = 64
HEVC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"hevm", b"hevs")
CONTAINER_BRANDS = (b"mif1", b"msf1")
AVIF_BRANDS = (b"avif", b"avis")

RAISE_LIMIT = ("raise ", Setting("max_pixels"), " if the image is genuine")
"""What to do about an image that is larger than allowed."""

Plugin = Callable[[BinaryIO, str], ImageFile.ImageFile]


def read_encoded(opener: ImageOpener, max_pixels: int = DEFAULT_MAX_PIXELS) -> bytes:
    """Reads a whole file after checking its size and its first bytes.

    The file may have 8 bytes per pixel plus 16 MiB.
    """
    limit = max_pixels * BYTES_PER_PIXEL + METADATA_BYTES
    try:
        with opener() as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(0)
            if size == 0:
                raise ImageError("the file is empty")
            if size > limit:
                raise ImageError(
                    f"the file has {size} bytes, more than the {limit} allowed",
                    *RAISE_LIMIT,
                    parameter="max_pixels",
                )
            # A film or an archive among the photographs is refused without reading the rest.
            head = file.read(min(size, SIGNATURE_BYTES))
            find_plugin(head)
            return head + file.read(size - len(head))
    except OSError as error:
        raise ImageError(f"the file cannot be read: {one_line(error)}") from error


def open_header(data: bytes, max_pixels: int = DEFAULT_MAX_PIXELS) -> ImageFile.ImageFile:
    """Parses only the header: format, mode, size and metadata; `load` decodes the pixels.

    Raises:
        ImageError: Unknown format, damaged header, more than `max_pixels` pixels, a side of more
            than `MAX_SIDE`, or a kind that takes far too long to decode.
    """
    silence_pil_warnings()
    name, plugin = find_plugin(data[:SIGNATURE_BYTES])
    try:
        # Image.open would apply its own global pixel limit before the size can be read.
        image = plugin(io.BytesIO(data), "")
    except Exception as error:
        bands = _bands_of(data) if name == "TIFF" else None
        if bands is None:
            raise ImageError(f"not a readable {name} image: {one_line(error)}") from error
        image = bands
    width, height = image.size
    if width * height > max_pixels:
        raise ImageError(
            f"{width} x {height} pixels are more than the {max_pixels} allowed",
            *RAISE_LIMIT,
            parameter="max_pixels",
        )
    if max(width, height) > MAX_SIDE:
        raise ImageError(
            f"{width} x {height} pixels: a side is longer than the {MAX_SIDE} allowed",
            "cut the image into pieces, or leave it out",
        )
    if width < 1 or height < 1:
        raise ImageError(f"{width} x {height} pixels: the image is empty")
    refuse_slow(data, image)
    return image


def _bands_of(data: bytes) -> BandsFile | None:
    """The header of a TIFF with bands that PIL cannot show; None where it is damaged."""
    try:
        return BandsFile(io.BytesIO(data), "")
    except Exception:  # noqa: BLE001 - the reason of PIL is the better one
        return None


def find_plugin(head: bytes) -> tuple[str, Plugin]:
    """Name and PIL plugin of the accepted format that starts with these bytes.

    Raises:
        ImageError: No accepted format does, or the package that decodes it is not installed.
    """
    if is_heif(head) and "HEIF" not in plugins():
        raise ImageError(
            "a HEIC image, which the package pillow-heif decodes, and it is not installed",
            f"install it with: {pip_command('heic')}",
        )
    for name, (plugin, accepts) in plugins().items():
        if accepts(head) is True:
            return name, plugin
    other = next((name for start, name in _OTHERS.items() if head.startswith(start)), None)
    if other is not None:
        raise ImageError(f"not an image of a known format, but {other}, which is not read", CONVERT)
    known = ", ".join(FORMATS)
    raise ImageError(f"not an image of a known format ({known}): it begins with {head[:8]!r}")


@functools.cache
def plugins() -> dict[str, tuple[Plugin, Callable[[bytes], bool | str]]]:
    """The plugin and the signature check for each accepted format; HEIF if it is installed."""
    Image.init()
    found: dict[str, Any] = dict(Image.OPEN)
    with contextlib.suppress(ImportError, OSError):  # not installed, or it cannot be loaded
        found["HEIF"] = (importlib.import_module("pillow_heif").HeifImageFile, is_heif)
    return {name: found[name] for name in FORMATS if name in found}


CONVERT = "write its values as PNG or TIFF of 16 bits, as the page on other fields shows"
"""What to do with images of other fields."""

_OTHERS = {
    b"\0\0\0\x0cjP  \r\n": "a JPEG 2000 image",
    b"\xff\x4f\xff\x51": "a JPEG 2000 image",
    bytes(SIGNATURE_BYTES): "perhaps a DICOM file",
}
"""What files of other fields begin with; those of DICOM with 128 zeros, mostly."""


def is_heif(head: bytes) -> bool:
    """Whether a file that starts with these bytes is HEIC or HEIF, and not AVIF.

    Both are in the same container, and some writers name it instead of the codec.
    """
    if head[4:8] != b"ftyp":
        return False
    length = min(int.from_bytes(head[:4], "big"), len(head))
    others = [head[start : start + 4] for start in range(16, length, 4)]
    is_container = head[8:12] in CONTAINER_BRANDS and not set(AVIF_BRANDS) & set(others)
    return head[8:12] in HEVC_BRANDS or is_container


def silence_pil_warnings() -> None:
    """Ignores PIL's warnings about odd metadata, so that none is printed or becomes an error.

    `warnings.catch_warnings` replaces a list that all threads share, so two threads that leave it
    in the wrong order lose filters or keep them for ever. One permanent filter for PIL's modules
    has no such race. It is added again if a `catch_warnings` elsewhere dropped it.
    """
    # What it logs of a TIFF that it cannot show, it raises as well.
    logging.getLogger("PIL.TiffImagePlugin").setLevel(logging.CRITICAL)
    pattern = r"PIL\."
    silenced = any(
        action == "ignore" and getattr(module, "pattern", None) == pattern
        for action, _, _, module, _ in tuple(warnings.filters)
    )
    if not silenced:
        warnings.filterwarnings("ignore", module=pattern)


def one_line(error: BaseException) -> str:
    """Text of an error without line breaks, or the name of its type if it has no text."""
    return " ".join(str(error).split()) or type(error).__name__


PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
SWAPPED_SIDES = (5, 6, 7, 8)
DAMAGED_METADATA = (
    SyntaxError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    OSError,
    EOFError,
    struct.error,
)
TRANSPOSES = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


def decode_to_pil(header: ImageFile.ImageFile, pixels: Pixels | None = None) -> Image.Image:
    """Decodes the first frame with PIL to an upright RGB image.

    Args:
        pixels: What is seen of more than eight bits a channel, many bands and pages; None for the
            upper eight bits, or the smallest and the largest value of 32, and for the first page.
    """
    try:
        image = _of_tiff(header, pixels or Pixels())
        if image is None and pixels is not None and pixels.range is not None and is_deep(header):
            image = Image.fromarray(pixels.range.scaled(read_deep(header)))
        if image is None:
            header.load()
            image = to_rgb(header, None if pixels is None else pixels.range)
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"cannot be decoded: {one_line(error)}") from error
    transpose = TRANSPOSES.get(orientation(header))
    return image if transpose is None else image.transpose(transpose)


def _of_tiff(header: ImageFile.ImageFile, pixels: Pixels) -> Image.Image | None:
    """The chosen bands of a TIFF; None where PIL shows it, at the page that is chosen."""
    is_unknown = isinstance(header, BandsFile)
    if header.format != "TIFF" or not (is_unknown or pixels != Pixels()):
        return None
    data = header.fp.getvalue()  # type: ignore[union-attr]
    pages = pages_of(data)
    page = pages[page_number(pixels.page, len(pages))]
    is_deep = page.bits > 8 and page.num_bands > 1  # noqa: PLR2004 - of which PIL keeps eight
    if not (is_unknown or pixels.bands or is_deep):
        header.seek(page.place)
        return None
    values = chosen_bands(read_values(data, page), pixels.bands, page)
    scaled = to_bytes(values, pixels.range, page.tags.get(NO_DATA_TAG))
    if page.number(262, 1) == 0:
        scaled = 255 - scaled
    return upright(Image.fromarray(np.ascontiguousarray(scaled)), page, TRANSPOSES)


def to_rgb(image: Image.Image, pixel_range: PixelRange | None = None) -> Image.Image:
    """Converts to three channels of eight bits: repeats grey, drops alpha, scales wide values.

    PIL's own conversion clips 16-bit values at 255, which turns most such images white.
    """
    if is_wide(image):
        image = Image.fromarray(_to_bytes(image, pixel_range))
    elif image.mode in PREMULTIPLIED:
        image = image.convert(PREMULTIPLIED[image.mode])
    image.info.pop("transparency", None)
    return image if image.mode == "RGB" else image.convert("RGB")


def _to_bytes(image: Image.Image, pixel_range: PixelRange | None) -> NDArray[np.uint8]:
    """Eight bits of an image with one channel of more."""
    if pixel_range is not None:
        return pixel_range.to_bytes(image)
    values = np.asarray(image)
    if is_unsigned(image):
        scaled = (values.astype(np.int32) >> 8).astype(np.uint8)
    else:
        kept = require_measured(image, values) | np.isinf(values)
        scaled = stretch(np.where(kept, values, np.float32(np.nan)))
    return 255 - scaled if is_white_zero(image) else scaled


def stretch(values: NDArray[np.int32] | NDArray[np.float32]) -> NDArray[np.uint8]:
    """Maps the smallest finite value to 0 and the largest to 255: no range is standard here."""
    finite = np.isfinite(values)
    if not finite.any():
        raise ImageError("no pixel has a finite value")
    low, high = float(values[finite].min()), float(values[finite].max())
    scaled = (np.nan_to_num(values.astype(np.float64), nan=low) - low) / max(high - low, 1e-300)
    return np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)


def orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 to 8, where 1 is upright and 5 to 8 swap the sides.

    Only the EXIF block counts, as in browsers and torchcodec; PIL would also read XMP. For TIFF
    the answer is always 1, because PIL rotates those while it decodes. An image with a damaged
    block counts as upright.
    """
    block = image.info.get("exif")
    if not isinstance(block, bytes) or image.format == "TIFF":
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        value = exif.get(ExifTags.Base.Orientation, 1)
    except DAMAGED_METADATA:
        return 1
    return value if value in TRANSPOSES else 1


def held_orientation(image: Image.Image) -> int:
    """The same of an image that a program holds, which may have turned it and dropped the tag."""
    image.load()  # a PNG may have its block after the pixels, and a TIFF is turned
    if orientation(image) == 1:
        return 1
    value = image.getexif().get(ExifTags.Base.Orientation, 1)
    return value if value in TRANSPOSES else 1


def upright_shape(header: ImageFile.ImageFile) -> tuple[int, int]:
    """Height and width after the EXIF orientation is applied."""
    width, height = header.size
    return (width, height) if orientation(header) in SWAPPED_SIDES else (height, width)


QUALITY = 85
"""JPEG quality of small pictures."""


def small_picture(data: bytes, size: int, max_pixels: int, pixels: Pixels | None = None) -> bytes:
    """A JPEG of an image, at most `size` pixels long and wide.

    Raises an `ImageError` where it cannot be decoded, has more pixels than `max_pixels`, or takes
    more memory than this process may have.
    """
    with naming_memory():
        header = open_header(data, max_pixels)
        header.draft("RGB", (size, size))  # decodes a JPEG at a fraction of its size
        picture = decode_to_pil(header, pixels)
        picture.thumbnail((size, size), Image.Resampling.BICUBIC)
        target = io.BytesIO()
        picture.save(target, "JPEG", quality=QUALITY)
        return target.getvalue()


@contextlib.contextmanager
def naming_memory() -> Iterator[None]:
    """Raises ImageError where an image takes more memory than this process may have."""
    try:
        yield
    except (ImageError, MemoryError) as error:
        if MemoryError in (type(error), type(error.__cause__)):
            raise ImageError("takes more memory to decode than a thumbnail may") from None
        raise
