"""One encoded image to the square uint8 input of a backbone, fast or exactly as open_clip does.

Both modes show a backbone the same picture; they differ in the resize, by a few levels of 255:

- `fast` decodes by torchcodec where the image is plain (JPEG, 8-bit PNG, still WebP) and by PIL
  otherwise, then resizes a uint8 tensor with antialiasing.
- `exact` decodes and resizes by PIL, bit for bit what open_clip's transform gives of the same
  RGB or grey image.

In both: grey is repeated to three channels; alpha is dropped, not blended; palette, CMYK and YCbCr
become RGB; of 16 bits the upper 8 are kept; 32-bit and floating-point images are stretched from
their smallest to their largest value; of an animation the first frame is used; EXIF orientation is
applied. Conversion comes before the resize.

Everything here may be called from many threads at once. Torch would start a pool of its own in
each: give `begin_decoding` to the executor as its initializer.
"""

import os
import sys
import threading
from collections.abc import Sequence
from typing import Literal

import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as F

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.datasets.sample import ImageOpener
from difficulty_service.errors import ImageError
from difficulty_service.images.augmentation import Augmentation, Crop, crop_key, draw_crop
from difficulty_service.images.decoding import decode_to_pil, decode_to_tensor, decoder_name
from difficulty_service.images.header import (
    DEFAULT_MAX_PIXELS,
    one_line,
    open_header,
    read_encoded,
)

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "Augmentation",
    "Mode",
    "begin_decoding",
    "decoder_name",
    "normalise",
    "prepare",
    "prepare_runs",
    "read_image",
    "stack",
]

Mode = Literal["fast", "exact"]
DECODERS_NICENESS = 10
DecodedImage = Tensor | Image.Image


def read_image(
    opener: ImageOpener, mode: Mode = "fast", max_pixels: int = DEFAULT_MAX_PIXELS
) -> DecodedImage:
    """Reads and decodes one image: upright, RGB, eight bits.

    Args:
        opener: Opens the encoded image.
        mode: `fast` or `exact`.
        max_pixels: Larger images are refused by their header, before anything is decoded.

    Returns:
        A uint8 tensor of shape (3, height, width) if fast, an RGB PIL image if exact.

    Raises:
        ImageError: The file is empty, no image, damaged or too large; one line of reason.
    """
    data = read_encoded(opener, max_pixels)
    header = open_header(data, max_pixels)
    return decode_to_pil(header) if mode == "exact" else decode_to_tensor(data, header)


def prepare(
    opener: ImageOpener,
    preprocessing: Preprocessing,
    mode: Mode = "fast",
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Tensor:
    """Reads one image, resizes its shorter side and cuts out the centre.

    Returns:
        Uint8, in memory as (size, size, 3). Shape (3, size, size).

    Raises:
        ImageError: As `read_image`, or so elongated that its resized form exceeds `max_pixels`.
    """
    decoded = read_image(opener, mode, max_pixels)
    height, width = F.get_size(decoded)
    if height == width == preprocessing.resize == preprocessing.size:
        return to_tensor(decoded)  # asking for nothing takes a tenth of a small image's time
    resized_pixels = preprocessing.resize**2 * max(height, width) // min(height, width)
    if resized_pixels > max(max_pixels, preprocessing.resize**2):
        raise ImageError(
            f"{width} x {height} pixels are too elongated: with the shorter side at "
            f"{preprocessing.resize} they become more than the {max_pixels} pixels allowed"
        )
    interpolation = InterpolationMode(preprocessing.interpolation)
    try:
        decoded = F.resize(decoded, [preprocessing.resize], interpolation, antialias=True)
    except (MemoryError, RuntimeError, ValueError) as error:
        raise ImageError(f"cannot be resized: {one_line(error)}") from error
    return to_tensor(F.center_crop(decoded, [preprocessing.size]))


def prepare_runs(
    opener: ImageOpener,
    preprocessing: Preprocessing,
    sample_id: str,
    augmentation: Augmentation,
    mode: Mode = "fast",
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Tensor:
    """Reads one image once and makes all its random crops and flips.

    The views depend on the augmentation's seed, the sample's id and the number of the run alone,
    and the first views of many runs are those of fewer.

    Returns:
        Uint8, in memory as (runs, size, size, 3). Shape (runs, 3, size, size).

    Raises:
        ImageError: As `read_image`.
    """
    decoded = read_image(opener, mode, max_pixels)
    height, width = F.get_size(decoded)
    crops = [
        draw_crop(height, width, crop_key(augmentation, sample_id, run))
        for run in range(1, augmentation.runs + 1)
    ]
    return stack([cut(decoded, crop, preprocessing) for crop in crops])


def cut(decoded: DecodedImage, crop: Crop, preprocessing: Preprocessing) -> Tensor:
    """One crop, resized to a square and mirrored where it says so; shape (3, size, size)."""
    view = F.resized_crop(
        decoded,
        crop.top,
        crop.left,
        crop.height,
        crop.width,
        [preprocessing.size, preprocessing.size],
        InterpolationMode(preprocessing.interpolation),
        antialias=True,
    )
    return to_tensor(F.horizontal_flip(view) if crop.mirrored else view)


def to_tensor(image: DecodedImage) -> Tensor:
    """Uint8, in memory as (height, width, 3), as decoders write it. Shape (3, height, width)."""
    tensor = image if isinstance(image, Tensor) else F.pil_to_tensor(image)
    return tensor.permute(1, 2, 0).contiguous().permute(2, 0, 1)


def stack(views: Sequence[Tensor]) -> Tensor:
    """Views in one tensor, in memory as (views, size, size, 3). Shape (views, 3, size, size)."""
    return torch.stack([view.permute(1, 2, 0) for view in views]).permute(0, 3, 1, 2)


def normalise(images: Tensor, preprocessing: Preprocessing, dtype: torch.dtype) -> Tensor:
    """(x / 255 - mean) / std, in float32 on the images' own device, then rounded to `dtype`.

    Args:
        images: Uint8; fastest in the layout that `stack` gives. Shape (samples, 3, size, size).
        preprocessing: Holds the mean and the standard deviation of each channel.
        dtype: Of the result.

    Returns:
        Channels last. Shape (samples, 3, size, size).
    """
    images = images.contiguous(memory_format=torch.channels_last)

    def of_one_row(statistic: tuple[float, ...]) -> Tensor:
        # A whole row of pixels: with one pixel alone the inner loop would have three rounds.
        pixel = torch.tensor(statistic, device=images.device).view(1, 3, 1, 1)
        row = pixel.expand(1, 3, 1, images.shape[3])
        return row.contiguous(memory_format=torch.channels_last)

    mean, std = of_one_row(preprocessing.mean), of_one_row(preprocessing.std)
    return images.to(torch.float32).div_(255).sub_(mean).div_(std).to(dtype)


def begin_decoding() -> None:
    """Makes the calling thread one that decodes; the initializer of a pool of such threads.

    Torch uses one core in it; the number belongs to the thread that sets it. Where priorities
    belong to threads, which is on Linux, it goes behind the thread that runs the network: decoders
    that are ahead must not take the core of the one that everybody waits for.
    """
    torch.set_num_threads(1)
    if sys.platform == "linux":
        # Not below what it has already, as under `nice`; asking for more is refused without rights.
        niceness = max(DECODERS_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)
