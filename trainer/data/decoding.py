"""One encoded image to upright RGB pixels of the size a model takes."""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.errors import ImageError

_SIXTEEN_BITS = ("I;16", "I;16L", "I;16B", "I;16N")
_PREMULTIPLIED = {"La": "LA", "RGBa": "RGBA"}
_DAMAGED_EXIF = (
    *(SyntaxError, ValueError, TypeError, LookupError, ArithmeticError),
    *(OSError, EOFError, struct.error),
)
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@dataclass(frozen=True)
class Fit:
    """How a whole image becomes one of a given size.

    Attributes:
        height: Of the result, in pixels.
        width: Of the result, in pixels.
        margin: The image is resized to cover this many times the result, whose centre is kept.
        resizes: Whether an image of another size is resized; otherwise it is an error.
    """

    height: int
    width: int
    margin: float = 1.0
    resizes: bool = True

    def apply(self, image: Image.Image) -> Image.Image:
        """The image at that size; one that has it already stays as it is.

        Raises:
            ImageError: It has another size and may not be resized.
        """
        width, height = image.size
        if (height, width) == (self.height, self.width):
            return image
        if not self.resizes:
            raise ImageError(
                f"{width} x {height} pixels, where the first image has {self.width} x "
                f"{self.height}; set image_size in the recipe to resize them all"
            )
        scale = self.margin * max(self.height / height, self.width / width)
        # Equal to resizing all and then cutting, without making the pixels that are cut off.
        across, down = self.width / scale, self.height / scale
        left, top = (width - across) / 2, (height - down) / 2
        box = (max(left, 0), max(top, 0), min(left + across, width), min(top + down, height))
        return image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=box)


def decode(opener: ImageOpener) -> Image.Image:
    """Decodes the first frame: RGB, eight bits, turned upright by its EXIF block.

    Grey is repeated, alpha dropped, of 16 bits the upper 8 kept; 32-bit and floating-point
    values are stretched from their smallest to their largest.

    Raises:
        ImageError: The image is missing, truncated, damaged or of an unknown kind.
    """
    try:
        with opener() as file, Image.open(file) as encoded:
            encoded.load()
            image = _to_rgb(encoded)
            turn = _TURNS.get(_orientation(encoded))
    except ImageError:
        raise
    except Exception as error:
        raise ImageError(f"cannot be decoded: {' '.join(str(error).split())}") from error
    return image if turn is None else image.transpose(turn)


def pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """Uint8 values of an RGB image. Shape (3, height, width)."""
    return np.asarray(image).transpose(2, 0, 1)


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode in _SIXTEEN_BITS or (image.mode == "I" and image.format == "PPM"):
        # PIL itself would clip at 255 and turn nearly everything white.
        image = Image.fromarray((np.asarray(image).astype(np.int32) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        image = Image.fromarray(_stretch(np.asarray(image)))
    elif image.mode in _PREMULTIPLIED:
        image = image.convert(_PREMULTIPLIED[image.mode])
    image.info.pop("transparency", None)
    return image.convert("RGB")


def _stretch(values: NDArray[np.int32] | NDArray[np.float32]) -> NDArray[np.uint8]:
    finite = np.isfinite(values)
    if not finite.any():
        raise ImageError("no pixel has a finite value")
    low, high = float(values[finite].min()), float(values[finite].max())
    scaled = (np.nan_to_num(values.astype(np.float64), nan=low) - low) / max(high - low, 1e-300)
    return np.rint(scaled.clip(0, 1) * 255).astype(np.uint8)


def _orientation(image: Image.Image) -> int:
    """EXIF orientation, 1 where there is none; XMP does not count, nor TIFF, which PIL turns."""
    block = image.info.get("exif")
    if not isinstance(block, bytes) or image.format == "TIFF":
        return 1
    exif = Image.Exif()
    try:
        exif.load(block)
        return int(exif.get(ExifTags.Base.Orientation, 1))
    except _DAMAGED_EXIF:
        return 1
