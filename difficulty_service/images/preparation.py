"""Turns an encoded image into the uint8 input of a backbone, fast or as timm and open_clip do.

All modes give a backbone the same picture, which differs by a few levels of 255:

- `fast` decodes plain images (JPEG, 8-bit PNG, still WebP) with torchcodec and all others with
  PIL, then resizes a uint8 tensor with antialiasing.
- `exact` decodes and resizes with PIL. The result equals that of the transform of the network's
  library (timm or open_clip) of the same RGB or grey image bit for bit.
- `gpu` has a GPU decode and resize plain JPEGs, as `nvjpeg` does; here it is `fast`, which all
  other images get.

In all modes grey is repeated to three channels; alpha is dropped, not blended; palette, CMYK and
YCbCr are converted to RGB; grey of more than 8 bits is scaled from a range of values to 8 bits, or
without one the upper 8 of 16 bits are kept and values of 32 bits are scaled from their smallest to
their largest; the first frame of an animation is used; the EXIF orientation is applied. Conversion
comes before the resize.

Everything here is thread-safe. Torch would start a thread pool in each calling thread: pass
`set_up_decoding_thread` to the executor as its initializer.
"""

import functools
import importlib
import importlib.metadata
import math
import os
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageFile
from torch import Tensor

from difficulty_service.backbones.backbone import Preprocessing, height_and_width
from difficulty_service.base.errors import ImageError
from difficulty_service.images.header import (
    DEFAULT_MAX_PIXELS,
    RAISE_LIMIT,
    decode_to_pil,
    one_line,
    open_header,
    read_encoded,
    upright_shape,
)
from difficulty_service.images.modes import Mode
from difficulty_service.images.opener import ImageOpener
from difficulty_service.images.pixels import Pixels
from difficulty_service.images.resizing import (
    DecodedImage,
    crop_centre,
    resize,
    shape_by_shorter_side,
    size_of,
    to_tensor,
)

if TYPE_CHECKING:
    from difficulty_service.images.corruptions import Corruption

__all__ = [
    "DEFAULT_MAX_PIXELS",
    "decode",
    "decoder_name",
    "normalise",
    "pixels_of",
    "prepare",
    "read_image",
    "set_up_decoding_thread",
    "stack",
    "to_view",
]

DECODER_NICENESS = 10


def read_image(
    opener: ImageOpener,
    mode: Mode = "fast",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    pixels: Pixels | None = None,
) -> DecodedImage:
    """Reads and decodes one image in its original size: upright, RGB, eight bits per channel.

    Only the formats in `header.FORMATS` are decoded, whatever the file is called.

    An RGB PIL image in mode `exact`, otherwise a uint8 tensor of shape (3, height, width).

    Raises:
        ImageError: The file is empty, not an image, of another format, damaged or too large. The
            message is one line.
    """
    data = read_encoded(opener, max_pixels)
    header = open_header(data, max_pixels)
    if mode == "exact":
        return decode_to_pil(header, pixels)
    return decode_to_tensor(data, header, pixels)


def prepare(
    opener: ImageOpener,
    preprocessing: Preprocessing,
    mode: Mode = "fast",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    corruption: "Corruption | None" = None,
    pixels: Pixels | None = None,
) -> Tensor:
    """Reads one image as `decode` does, and makes its `to_view`. Shape (3, height, width)."""
    decoded = decode(opener, mode, max_pixels, corruption, pixels)
    return to_view(decoded, preprocessing, max_pixels)


def decode(
    opener: ImageOpener,
    mode: Mode = "fast",
    max_pixels: int = DEFAULT_MAX_PIXELS,
    corruption: "Corruption | None" = None,
    pixels: Pixels | None = None,
) -> DecodedImage:
    """Reads one image as `read_image` does, and corrupts it if asked."""
    return _corrupted(read_image(opener, mode, max_pixels, pixels), corruption)


def to_view(
    decoded: DecodedImage, preprocessing: Preprocessing, max_pixels: int = DEFAULT_MAX_PIXELS
) -> Tensor:
    """Resizes an image and takes the centre, as the preprocessing says.

    Raises ImageError where the resized image would exceed `max_pixels`.
    Uint8, stored in memory as (height, width, 3). Shape (3, height, width).
    """
    height, width = size_of(decoded)
    resized = resized_shape(height, width, preprocessing)
    if (height, width) == resized == preprocessing.shape:
        return to_tensor(decoded)  # a resize to the same size takes a tenth of the time here
    usual = math.prod(height_and_width(preprocessing.resize))
    if math.prod(resized) > max(max_pixels, usual):
        raise ImageError(
            f"{width} x {height} pixels are too elongated: with the shorter side at "
            f"{min(resized)} they become more than the {max_pixels} pixels allowed",
            *RAISE_LIMIT,
            parameter="max_pixels",
        )
    try:
        decoded = resize(decoded, *resized, preprocessing.interpolation)
    except (MemoryError, RuntimeError, ValueError) as error:
        raise ImageError(f"cannot be resized: {one_line(error)}") from error
    return to_tensor(crop_centre(decoded, *preprocessing.shape, preprocessing.fill))


def resized_shape(height: int, width: int, preprocessing: Preprocessing) -> tuple[int, int]:
    """Height and width that an image of any shape is resized to before the centre is taken."""
    rows, columns = height_and_width(preprocessing.resize)
    if preprocessing.fit == "squash":
        return rows, columns
    if preprocessing.fit == "crop" and rows == columns:
        return shape_by_shorter_side(height, width, rows)
    # Timm resizes to the nearest size for these, and has torchvision do it for squares.
    ratios = height / rows, width / columns
    ratio = max(ratios) if preprocessing.fit == "border" else min(ratios)
    return round(height / ratio), round(width / ratio)


def _corrupted(decoded: DecodedImage, corruption: "Corruption | None") -> DecodedImage:
    """The image in its own size, as the corruptions of published benchmarks were applied to it."""
    if corruption is None:
        return decoded
    changed = corruption.apply(to_tensor(decoded))
    if isinstance(decoded, Tensor):
        return changed
    return Image.fromarray(changed.permute(1, 2, 0).numpy())


def pixels_of(image: DecodedImage) -> NDArray[np.uint8]:
    """The pixels of an image, on its memory where it is a tensor. Shape (height, width, 3)."""
    if isinstance(image, Tensor):
        return image.permute(1, 2, 0).numpy()
    return np.asarray(image)


def stack(views: Sequence[Tensor]) -> Tensor:
    """Stacks views of shape (3, height, width). Shape (views, 3, height, width).

    Stored in memory as (views, height, width, 3).
    """
    return torch.stack([view.permute(1, 2, 0) for view in views]).permute(0, 3, 1, 2)


def normalise(images: Tensor, preprocessing: Preprocessing, dtype: torch.dtype) -> Tensor:
    """Computes (x / 255 - mean) / std in float32 on the images' device, then rounds to `dtype`.

    The images are uint8, fastest in the layout of `stack`; the result has channels last.
    Shape (samples, 3, height, width).
    """
    images = images.contiguous(memory_format=torch.channels_last)
    width, device = images.shape[3], images.device
    mean = _pixel_row(preprocessing.mean, width, device)
    std = _pixel_row(preprocessing.std, width, device)
    return images.to(torch.float32).div_(255).sub_(mean).div_(std).to(dtype)


@functools.lru_cache(maxsize=16)  # a copy to a GPU waits for all that is queued there
def _pixel_row(statistic: tuple[float, ...], width: int, device: torch.device) -> Tensor:
    """A number of each channel for a row of pixels. Shape (1, 3, 1, width)."""
    # A whole row, because the inner loop over a single pixel has only three steps.
    with torch.inference_mode(mode=False):  # what is kept may be used anywhere
        row = torch.tensor(statistic, device=device).view(1, 3, 1, 1).expand(1, 3, 1, width)
        return row.contiguous(memory_format=torch.channels_last)


def set_up_decoding_thread() -> None:
    """Configures the calling thread for decoding; the initializer of a pool of decoding threads.

    Limits torch to one core in this thread. On Linux, where priorities belong to threads, it also
    lowers the thread's priority below that of the thread that runs the network, so that decoding
    ahead does not slow down the network.
    """
    torch.set_num_threads(1)
    if sys.platform == "linux":
        # A process under `nice` may already be lower, and raising a priority needs privileges.
        niceness = max(DECODER_NICENESS, os.getpriority(os.PRIO_PROCESS, 0))
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), niceness)


PNG_BIT_DEPTH_OFFSET = 24
EIGHT_BITS = 8


def decode_to_tensor(
    data: bytes, header: ImageFile.ImageFile, pixels: Pixels | None = None
) -> Tensor:
    """Decodes with torchcodec if it is installed and the image is plain, otherwise with PIL.

    Uint8, upright, stored in memory as (height, width, 3). Shape (3, height, width).
    """
    decode = torchcodec_decoder()
    if decode is not None and is_plain(data, header):
        try:
            # Given bytes, it would replace the warning filters, which all threads share.
            decoded = decode(torch.frombuffer(bytearray(data), dtype=torch.uint8))
        except (RuntimeError, ValueError):
            decoded = None  # PIL decides about damaged images and gives better reasons.
        if decoded is not None and decoded.shape == (3, *upright_shape(header)):
            return decoded
    return torch.from_numpy(np.array(decode_to_pil(header, pixels))).permute(2, 0, 1)


def is_plain(data: bytes, header: ImageFile.ImageFile) -> bool:
    """Whether torchcodec is known to give exactly the pixels that PIL gives.

    PNG images with a colour profile go to PIL because libpng warns about bad profiles on stderr,
    and those with an orientation after the pixels because torchcodec reads none there.
    """
    if header.format in ("JPEG", "MPO"):  # MPO is a JPEG followed by further images.
        return header.mode in ("L", "RGB")
    if header.format not in ("PNG", "WEBP") or getattr(header, "is_animated", False):
        return False
    if header.format == "WEBP":
        return True
    if "exif" not in header.info and b"eXIf" in data:
        return False
    return data[PNG_BIT_DEPTH_OFFSET] <= EIGHT_BITS and "icc_profile" not in header.info


@functools.cache
def torchcodec_decoder() -> Callable[[Tensor], Tensor] | None:
    """Torchcodec's image decoder, or None if it is missing or incompatible with this torch.

    The decoder takes the encoded bytes as a uint8 tensor.
    """
    try:
        decoders = importlib.import_module("torchcodec.decoders")
    except (ImportError, OSError, RuntimeError):
        return None
    decoder: Callable[[Tensor], Tensor] | None = getattr(decoders, "decode_image", None)
    return decoder


def decoder_name(mode: Mode) -> str:
    """Names and versions of the libraries on which the pixels of decoded images depend.

    In mode `exact` PIL decodes all images; otherwise torchcodec those that are plain.
    """
    has_torchcodec = mode != "exact" and torchcodec_decoder() is not None
    packages = ("torchcodec", "pillow") if has_torchcodec else ("pillow",)
    names = [f"{name} {importlib.metadata.version(name)}" for name in packages]
    return ", ".join(["nvJPEG", *names] if mode == "gpu" else names)
