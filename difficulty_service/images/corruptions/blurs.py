"""What a lens, its focus and movement do."""

import numpy as np
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve

from difficulty_service.images.corruptions.pixels import Pixels, move_blur, zoom_in

_DISK_RADIUS = 8
"""Half-width of the grid on which the disk of a defocus is drawn, unless the disk is larger."""


def gaussian_blur(image: Pixels, strength: float) -> Pixels:
    """Blurs with this standard deviation in pixels."""
    return gaussian_filter(image, strength, mode="nearest", axes=(1, 2))


def defocus_blur(image: Pixels, strength: tuple[float, float]) -> Pixels:
    """Replaces each pixel by a disk.

    Args:
        image: See `Pixels`.
        strength: Radius of the disk and standard deviation of the blur of its edge, in pixels.
    """
    radius, edge = strength
    wide = radius > _DISK_RADIUS
    reach = int(radius) if wide else _DISK_RADIUS
    rows, columns = np.mgrid[-reach : reach + 1, -reach : reach + 1]
    disk = (rows**2 + columns**2 <= radius**2).astype(np.float64)
    disk = gaussian_filter(disk / disk.sum(), edge, radius=2 if wide else 1, mode="mirror")
    padded = np.pad(image, ((0, 0), (reach, reach), (reach, reach)), mode="reflect")
    return fftconvolve(padded, disk[None], mode="valid", axes=(1, 2))


def glass_blur(
    image: Pixels, strength: tuple[float, int, int], generator: np.random.Generator
) -> Pixels:
    """Blurs, moves every pixel a little, and blurs again.

    Args:
        image: See `Pixels`.
        strength: Standard deviation of both blurs and greatest distance, in pixels; how often
            pixels are moved.
        generator: Draws the distances.
    """
    sigma, reach, times = strength
    height, width = image.shape[1:]
    sources = [list(range(row * width, (row + 1) * width)) for row in range(height)]
    inner = [
        (row, column)
        for row in range(height - reach, reach, -1)
        for column in range(width - reach, reach, -1)
    ]
    for _ in range(times):
        moves = generator.integers(-reach, reach, (len(inner), 2)).tolist()
        # In the published images a pixel takes the colour of another, which keeps its own.
        for (row, column), (right, down) in zip(inner, moves, strict=True):
            sources[row][column] = sources[row + down][column + right]
    blurred = np.floor(gaussian_blur(image, sigma) * 255 + 1e-6) / 255
    moved = blurred.reshape(3, -1)[:, np.array(sources)]
    return gaussian_blur(moved, sigma)


def motion_blur(
    image: Pixels, strength: tuple[int, float], generator: np.random.Generator
) -> Pixels:
    """Blurs in a direction up to 45 degrees from the horizontal.

    Args:
        image: See `Pixels`.
        strength: Radius and standard deviation, in pixels.
        generator: Draws the direction.
    """
    radius, sigma = strength
    return move_blur(image, radius, sigma, generator.uniform(-45, 45))


def zoom_blur(image: Pixels, strength: tuple[float, float]) -> Pixels:
    """The mean of the image and of enlargements of it.

    Args:
        image: See `Pixels`.
        strength: Where the factors end, which begin at 1, and the step between them.
    """
    end, step = strength
    factors = np.arange(1, end, step)
    return (image + sum(zoom_in(image, factor) for factor in factors)) / (len(factors) + 1)
