"""Random augmentation of batches of images, on their device.

Every function takes images, uint8 of shape (samples, 3, height, width), and draws, random numbers
in [0, 1) of shape (samples, NUM_DRAWS), in the order of `trainer.samples.NUM_DRAWS`. The
augmentation of a sample depends on its own row of draws only.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from trainer.config import Augmentation

Augment = Callable[[Tensor, Tensor], Tensor]
"""Function of images and their draws that returns images of the same shape."""

MIRROR, ROW, COLUMN, AREA, RATIO = range(5)
"""Columns of the draws."""

SMALLEST_AREA = 0.08
"""Smallest fraction of the image in a random resized crop; the largest is 1."""

WIDEST = 4 / 3
"""Largest ratio of width to height of a random resized crop; the smallest is its inverse."""


def augmentation_of(name: Augmentation, crop_padding: int) -> Augment:
    """The function of an augmentation."""
    augmentations: dict[Augmentation, Augment] = {
        "none": keep,
        "flip": mirror,
        "flip_crop": partial(flip_crop, padding=crop_padding),
        "random_resized_crop": random_resized_crop,
    }
    return augmentations[name]


def keep(images: Tensor, draws: Tensor) -> Tensor:  # noqa: ARG001 - one signature for all
    """Returns the images unchanged."""
    return images


def mirror(images: Tensor, draws: Tensor) -> Tensor:
    """Mirrors the images whose draw is below one half."""
    mirrored = (draws[:, MIRROR] < 0.5).view(-1, 1, 1, 1)  # noqa: PLR2004 - one half
    return torch.where(mirrored, images.flip(-1), images)


def flip_crop(images: Tensor, draws: Tensor, padding: int) -> Tensor:
    """Crops a window of the original size from the image with a black border; then `mirror`."""
    height, width = images.shape[-2:]
    positions = 2 * padding + 1
    offsets = (draws[:, ROW : COLUMN + 1] * positions).long().clamp_(max=positions - 1)
    # Every window as a view of the same memory: (samples, 3, rows, columns, height, width).
    windows = F.pad(images, (padding,) * 4).unfold(2, height, 1).unfold(3, width, 1)
    samples = torch.arange(len(images), device=images.device)
    return mirror(windows[samples, :, offsets[:, 0], offsets[:, 1]], draws)


def crop_boxes(draws: Tensor, height: int, width: int) -> Tensor:
    """Boxes of random area, aspect ratio and position inside an image.

    The area is uniform in [0.08, 1] of the image, and the logarithm of width over height uniform
    in ±log(4/3), as in Szegedy et al. (2015); a side longer than the image's is cut to it.

    Returns:
        Left, top, right and bottom in fractional pixels, float64. Shape (samples, 4).
    """
    draws = draws.double()
    area = (SMALLEST_AREA + (1 - SMALLEST_AREA) * draws[:, AREA]) * height * width
    ratio = torch.exp((2 * draws[:, RATIO] - 1) * math.log(WIDEST))
    widths = torch.sqrt(area * ratio).clamp(max=width)
    heights = torch.sqrt(area / ratio).clamp(max=height)
    left = draws[:, COLUMN] * (width - widths)
    top = draws[:, ROW] * (height - heights)
    return torch.stack((left, top, left + widths, top + heights), dim=1)


def random_resized_crop(images: Tensor, draws: Tensor) -> Tensor:
    """Crops the box of `crop_boxes` and resizes it bilinearly to the size; then `mirror`."""
    height, width = images.shape[-2:]
    left, top, right, bottom = crop_boxes(draws, height, width).unbind(1)
    across = _centres(left, right, width) * 2 / width - 1
    down = _centres(top, bottom, height) * 2 / height - 1
    shape = (len(images), height, width)
    grid = torch.stack((across[:, None].expand(shape), down[:, :, None].expand(shape)), dim=-1)
    views = F.grid_sample(images.float(), grid.float(), padding_mode="border", align_corners=False)
    return mirror(views.round_().clamp_(0, 255).to(torch.uint8), draws)


def _centres(start: Tensor, end: Tensor, number: int) -> Tensor:
    """Centres of `number` equal parts of each interval. Shape (samples, number)."""
    fractions = (torch.arange(number, device=start.device) + 0.5) / number
    return start[:, None] + (end - start)[:, None] * fractions
