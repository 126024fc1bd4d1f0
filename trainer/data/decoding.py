"""One encoded image to RGB pixels of the size that a model takes, decoded as in scoring."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from difficulty_service.base.errors import ImageError, Setting
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, open_header, read_encoded
from difficulty_service.images.pil_decoding import decode_to_pil


@dataclass(frozen=True)
class Fit:
    """How a whole image is brought to a given size.

    Attributes:
        height: Height of the result, in pixels.
        width: Width of the result, in pixels.
        margin: Factor by which the resized image exceeds the result, which is its centre.
        resizes: Whether an image of another size is resized; otherwise it is an error.
        max_pixels: Maximum number of pixels of an image before it is resized.
    """

    height: int
    width: int
    margin: float = 1.0
    resizes: bool = True
    max_pixels: int = DEFAULT_MAX_PIXELS

    def apply(self, image: Image.Image) -> Image.Image:
        """Resizes an image and cuts out its centre; one of the right size is returned unchanged.

        Raises:
            ImageError: The image has another size and `resizes` is false.
        """
        width, height = image.size
        if (height, width) == (self.height, self.width):
            return image
        if not self.resizes:
            raise ImageError(
                f"{width} x {height} pixels, where the first image has {self.width} x "
                f"{self.height}",
                "set data.image_size in the recipe to resize all images",
            )
        scale = self.margin * max(self.height / height, self.width / width)
        # Equal to resizing the whole image and then cropping it, with less work.
        across, down = self.width / scale, self.height / scale
        left, top = (width - across) / 2, (height - down) / 2
        box = (max(left, 0), max(top, 0), min(left + across, width), min(top + down, height))
        return image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=box)


def decode(opener: ImageOpener, max_pixels: int = DEFAULT_MAX_PIXELS) -> Image.Image:
    """Reads and decodes the first frame of an image: RGB, eight bits, upright.

    Images of more pixels are refused by their header.

    Raises:
        ImageError: The file cannot be read, or the image is of a format that is not accepted,
            truncated, damaged or too large.
    """
    data = read_encoded(opener, max_pixels)
    # Always by PIL: resizing by PIL keeps the antialiasing that earlier runs were trained with.
    return decode_to_pil(open_header(data, max_pixels))


def failure_reason(error: ImageError) -> str:
    """The message of an error, with settings written as keys of a recipe."""
    return error.message(_as_recipe_key)


def pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """Uint8 values of an RGB image. Shape (3, height, width)."""
    return np.asarray(image).transpose(2, 0, 1)


def _as_recipe_key(setting: Setting) -> str:
    key = f"data.{setting.parameter}"
    return key if setting.value is None else f"{key} = {setting.value}"
