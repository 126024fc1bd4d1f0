"""Colours, compression and geometry.

Noise of the sensor.
"""

import io

import numpy as np
from PIL import Image
from scipy.ndimage import affine_transform, gaussian_filter, map_coordinates

from difficulty_service.images.corruptions.pixels import Pixels, from_pillow, to_pillow


def brightness(image: Pixels, strength: float) -> Pixels:
    """Adds to the value of hue, saturation and value (HSV)."""
    value = image.max(axis=0)
    brighter = np.minimum(value + strength, 1)
    # Hue and saturation stay, so all channels scale like the value; black becomes grey.
    ratio = np.divide(brighter, value, where=value > 0, out=np.zeros_like(value))
    return np.where(value > 0, image * ratio, brighter)


def contrast(image: Pixels, strength: float) -> Pixels:
    """Scales the differences from the mean of each channel."""
    mean = image.mean(axis=(1, 2), keepdims=True)
    return (image - mean) * strength + mean


def saturate(image: Pixels, strength: tuple[float, float]) -> Pixels:
    """Scales and shifts the saturation, with hue and value unchanged."""
    factor, summand = strength
    value = image.max(axis=0)
    below = value - image
    chroma = below.max(axis=0)
    saturation = np.divide(chroma, value, where=value > 0, out=np.zeros_like(value))
    # Grey has no hue; the benchmarks treat it as red.
    direction = np.broadcast_to(np.array([[[0.0]], [[1.0]], [[1.0]]]), image.shape).copy()
    np.divide(below, chroma, where=chroma > 0, out=direction)
    return value - value * np.clip(saturation * factor + summand, 0, 1) * direction


def pixelate(image: Pixels, strength: float) -> Pixels:
    """Reduces the resolution by a factor per side."""
    picture = to_pillow(image)
    small = tuple(max(int(side * strength), 1) for side in picture.size)
    smaller = picture.resize((small[0], small[1]), Image.Resampling.BOX)
    return from_pillow(smaller.resize(picture.size, Image.Resampling.BOX))


def jpeg_compression(image: Pixels, strength: int) -> Pixels:
    """Encodes and decodes the image as JPEG of this quality."""
    file = io.BytesIO()
    to_pillow(image).save(file, "JPEG", quality=strength)
    with Image.open(file) as picture:
        return from_pillow(picture)


def elastic_transform(
    image: Pixels, strength: tuple[float, float, float], generator: np.random.Generator
) -> Pixels:
    """Moves three corners of a square in the middle, then every pixel along a smooth random field.

    Args:
        image: See `Pixels`.
        strength: Scale and smoothness of the field, and greatest distance of the corners, in
            pixels.
        generator: Draws the distances.
    """
    scale, smoothness, distance = strength
    height, width = image.shape[1:]
    moved = move_corners(image, generator.uniform(-distance, distance, (3, 2)))
    fields = generator.uniform(-1, 1, (2, height, width))
    rows, columns = scale * gaussian_filter(
        fields, smoothness, mode="reflect", truncate=3, axes=(1, 2)
    )
    grid_rows, grid_columns = np.mgrid[:height, :width]
    places = np.stack([grid_rows + rows, grid_columns + columns])
    return np.stack(
        [map_coordinates(channel, places, order=1, mode="reflect") for channel in moved]
    )


def move_corners(image: Pixels, distances: np.ndarray) -> Pixels:
    """The affine map that moves three corners of a square in the middle; shape (3, 2)."""
    height, width = image.shape[1:]
    third = min(height, width) // 3
    middle = np.array([height // 2, width // 2])
    corners = middle + third * np.array([[1, 1], [1, -1], [-1, -1]])
    ones = np.ones((3, 1))
    # Rows and columns in the image as a linear function of those in the result.
    back = np.linalg.solve(np.hstack([corners + distances, ones]), corners.astype(float)).T
    return np.stack(
        [
            affine_transform(channel, back[:, :2], back[:, 2], order=1, mode="mirror")
            for channel in image
        ]
    )


def gaussian_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds normal noise of this standard deviation."""
    return image + strength * generator.standard_normal(image.shape)


def shot_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds Poisson noise, with `strength` photons for white."""
    return generator.poisson(image * strength) / strength


def impulse_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Replaces a fraction of all values by black or white, with equal probability."""
    draws = generator.random(image.shape)
    return np.where(draws < strength, np.where(draws < strength / 2, 0.0, 1.0), image)


def speckle_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds normal noise in proportion to the value."""
    return image + image * (strength * generator.standard_normal(image.shape))
