"""Cuts, mirrors and resizes decoded images, as torchvision does it, bit for bit.

Without torchvision, because loading that takes longer than all else that scoring a folder of images
loads but torch. Images are PIL images or uint8 tensors of shape (3, height, width) that are stored
as (height, width, 3).
"""

import platform

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn import functional as F

DecodedImage = Tensor | Image.Image


def size_of(image: DecodedImage) -> tuple[int, int]:
    """Height and width in pixels."""
    if isinstance(image, Tensor):
        return image.shape[1], image.shape[2]
    return image.height, image.width


def to_tensor(image: DecodedImage) -> Tensor:
    """A uint8 tensor stored in memory as (height, width, 3). Shape (3, height, width)."""
    if isinstance(image, Tensor):
        return image.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def resize(image: DecodedImage, height: int, width: int, interpolation: str) -> DecodedImage:
    """Resizes with antialiasing.

    Args:
        interpolation: `bicubic` or `bilinear`.

    Raises:
        MemoryError, RuntimeError, ValueError: There is no such image.
    """
    if size_of(image) == (height, width):
        return image
    if isinstance(image, Image.Image):
        return image.resize((width, height), Image.Resampling[interpolation.upper()])
    # Made a batch before the channels come first, so that the result is stored as the image is.
    batch = image.permute(1, 2, 0)[None].permute(0, 3, 1, 2)
    in_bytes = not image.is_cuda and (interpolation == "bicubic" or is_fast_in_bytes())
    resized = F.interpolate(
        batch if in_bytes else batch.float(),
        size=(height, width),
        mode=interpolation,
        align_corners=False,
        antialias=True,
    )
    return (resized if in_bytes else resized.clamp_(0, 255).round_().byte())[0]


def is_fast_in_bytes() -> bool:
    """Whether bytes are interpolated bilinearly as they are, not as numbers with a fraction."""
    is_arm = platform.machine() in {"aarch64", "arm64"}
    return is_arm or torch.backends.cpu.get_cpu_capability() in {"AVX2", "AVX512"}


def resize_shorter_side(image: DecodedImage, side: int, interpolation: str) -> DecodedImage:
    """Resizes to a length of the shorter side, whatever the other one becomes."""
    return resize(image, *shape_by_shorter_side(*size_of(image), side), interpolation)


def shape_by_shorter_side(height: int, width: int, side: int) -> tuple[int, int]:
    """Height and width of an image whose shorter side is resized; torchvision rounds down."""
    other = int(side * max(height, width) / min(height, width))
    return (side, other) if height <= width else (other, side)


def crop(image: DecodedImage, top: int, left: int, height: int, width: int) -> DecodedImage:
    """A part of an image, which must lie inside."""
    if isinstance(image, Tensor):
        return image[:, top : top + height, left : left + width]
    return image.crop((left, top, left + width, top + height))


def shift(image: DecodedImage, down: int, right: int) -> DecodedImage:
    """The image moved by some pixels, up and left where these are negative; black beside it."""
    if not isinstance(image, Tensor):
        left, top = -right, -down
        return image.crop((left, top, left + image.width, top + image.height))
    moved = F.pad(image.permute(1, 2, 0), (0, 0, right, -right, down, -down))
    return moved.permute(2, 0, 1)


def crop_centre(
    image: DecodedImage, height: int, width: int, fill: tuple[int, int, int]
) -> DecodedImage:
    """The rectangle in the middle; a side that is too short gets margins of the colour `fill`."""
    rows, columns = size_of(image)
    whole = max(rows, height), max(columns, width)
    if whole != (rows, columns):
        top, left = (whole[0] - rows) // 2, (whole[1] - columns) // 2
        inside = to_tensor(image).permute(1, 2, 0)
        padded = inside.new_empty(*whole, 3)
        for channel, level in enumerate(fill):
            padded[..., channel] = level
        padded[top : top + rows, left : left + columns] = inside
        image = padded.permute(2, 0, 1)
    top, left = round((whole[0] - height) / 2), round((whole[1] - width) / 2)
    return crop(image, top, left, height, width)


def mirror(image: DecodedImage) -> DecodedImage:
    """The image with left and right exchanged."""
    if isinstance(image, Tensor):
        return image.flip(2)
    return image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
