"""Decodes one image with PIL: eight bits, three channels, upright. Imports no torch."""

import struct

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image, ImageFile

from difficulty_service.base.errors import ImageError
from difficulty_service.images.header import one_line

FULL_RANGE_16 = ("I;16", "I;16L", "I;16B", "I;16N")
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


def decode_to_pil(header: ImageFile.ImageFile) -> Image.Image:
    """Decodes the first frame with PIL to an upright RGB image."""
    try:
        header.load()
        image = to_rgb(header)
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"cannot be decoded: {one_line(error)}") from error
    transpose = TRANSPOSES.get(orientation(header))
    return image if transpose is None else image.transpose(transpose)


def to_rgb(image: Image.Image) -> Image.Image:
    """Converts to three channels of eight bits: repeats grey, drops alpha, scales wide values.

    PIL's own conversion clips 16-bit values at 255, which turns most such images white.
    """
    if image.mode in FULL_RANGE_16 or (image.mode == "I" and image.format == "PPM"):
        image = Image.fromarray((np.asarray(image).astype(np.int32) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        image = Image.fromarray(stretch(np.asarray(image)))
    elif image.mode in PREMULTIPLIED:
        image = image.convert(PREMULTIPLIED[image.mode])
    image.info.pop("transparency", None)
    return image if image.mode == "RGB" else image.convert("RGB")


def stretch(values: NDArray[np.int32] | NDArray[np.float32]) -> NDArray[np.uint8]:
    """Maps the smallest finite value to 0 and the largest to 255: no range is standard here."""
    finite = np.isfinite(values)
    if not finite.any():
        raise ImageError("no pixel has a finite value")
    low, high = float(values[finite].min()), float(values[finite].max())
    scaled = (np.nan_to_num(values.astype(np.float64), nan=low) - low) / max(high - low, 1e-300)
    return np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)


def orientation(image: ImageFile.ImageFile) -> int:
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


def upright_shape(header: ImageFile.ImageFile) -> tuple[int, int]:
    """Height and width after the EXIF orientation is applied."""
    width, height = header.size
    return (width, height) if orientation(header) in SWAPPED_SIDES else (height, width)
