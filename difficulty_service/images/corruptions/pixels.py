"""One image as the corruptions see it, and what several of them do to it."""

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import zoom

Pixels = NDArray[np.float64]
"""One image in [0, 1]. Shape (3, height, width)."""

Layer = NDArray[np.float64]
"""One number per pixel. Shape (height, width)."""


def to_pillow(image: Pixels) -> Image.Image:
    """The image with values rounded to eight bits."""
    return Image.fromarray(np.rint(image.transpose(1, 2, 0) * 255).astype(np.uint8))


def from_pillow(picture: Image.Image) -> Pixels:
    """The pixels of an image with three channels."""
    return np.asarray(picture).transpose(2, 0, 1) / 255


def zoom_in(layers: NDArray[np.float64], factor: float) -> NDArray[np.float64]:
    """Enlarges the middle until it is as large as the whole was, with linear interpolation.

    Args:
        layers: Shape (layers, height, width).
        factor: At least 1.
    """
    height, width = layers.shape[1:]
    rows, columns = int(np.ceil(height / factor)), int(np.ceil(width / factor))
    top, left = (height - rows) // 2, (width - columns) // 2
    middle = layers[:, top : top + rows, left : left + columns]
    enlarged = zoom(middle, (1, factor, factor), order=1)
    top, left = (enlarged.shape[1] - height) // 2, (enlarged.shape[2] - width) // 2
    return enlarged[:, top : top + height, left : left + width]


def move_blur(
    layers: NDArray[np.float64], radius: int, sigma: float, degrees: float
) -> NDArray[np.float64]:
    """Blurs in one direction, as ImageMagick's motion blur, by half of a normal distribution.

    Args:
        layers: Shape (layers, height, width).
        radius: Half of the greatest distance, in pixels.
        sigma: Standard deviation of the distribution, in pixels.
        degrees: Direction, from the right downwards.
    """
    steps = np.arange(2 * radius + 1)
    weights = np.exp(-(steps**2) / (2 * sigma**2))
    angle = np.deg2rad(degrees)
    rows, columns = (np.arange(size) for size in layers.shape[1:])
    blurred = np.zeros_like(layers)
    for step, weight in zip(steps, weights / weights.sum(), strict=True):
        down, right = (round(step * part) for part in (np.sin(angle), np.cos(angle)))
        # Beyond the border, its last pixel goes on.
        moved_rows = np.clip(rows + down, 0, len(rows) - 1)
        moved_columns = np.clip(columns + right, 0, len(columns) - 1)
        blurred += weight * layers[:, moved_rows][:, :, moved_columns]
    return blurred
