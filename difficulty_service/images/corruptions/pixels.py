"""One image as the corruptions see it, and what lenses, movement, sensors and files do to it."""

import io

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import affine_transform, gaussian_filter, map_coordinates, zoom

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
    """Enlarges the middle of layers to the size of the whole, linearly, by a factor from 1 up."""
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

    The radius is half of the greatest distance, and sigma the standard deviation, both in pixels;
    the direction is given from the right downwards.
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


_DISK_RADIUS = 8
"""Half-width of the grid on which the disk of a defocus is drawn, unless the disk is larger."""


def gaussian_blur(image: Pixels, strength: float) -> Pixels:
    """Blurs with this standard deviation in pixels."""
    return gaussian_filter(image, strength, mode="nearest", axes=(1, 2))


def defocus_blur(image: Pixels, strength: tuple[float, float]) -> Pixels:
    """Replaces each pixel by a disk of a radius, its edge blurred by a deviation, in pixels."""
    radius, edge = strength
    from scipy.signal import fftconvolve  # here, for it takes a second that few commands need

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

    The strength is the standard deviation of both blurs and the greatest distance, in pixels, and
    how often pixels are moved.
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
    """Blurs up to 45 degrees from the horizontal, by a radius and standard deviation in pixels."""
    radius, sigma = strength
    return move_blur(image, radius, sigma, generator.uniform(-45, 45))


def zoom_blur(image: Pixels, strength: tuple[float, float]) -> Pixels:
    """The mean of the image and of enlargements of it, from 1 to a factor in steps."""
    end, step = strength
    factors = np.arange(1, end, step)
    return (image + sum(zoom_in(image, factor) for factor in factors)) / (len(factors) + 1)


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

    The strength is scale and smoothness of the field, and greatest distance of the corners, in
    pixels.
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
