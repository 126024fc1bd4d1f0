"""Common corruptions of test images, at five severities (Hendrycks & Dietterich, ICLR 2019).

These are ten of the nineteen corruptions, those that need only NumPy, SciPy and Pillow. Speckle
noise, glass, motion and zoom blur, snow, frost, fog, spatter and the elastic transform are left
out. The constants are those of the authors' three benchmarks, of which one is chosen by the size
of the images; the random numbers differ.
"""

import hashlib
import io
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.ndimage import gaussian_filter
from scipy.signal import fftconvolve
from torch import Tensor

from difficulty_service.errors import ConfigError

SEVERITIES = (1, 2, 3, 4, 5)

Pixels = NDArray[np.float64]
"""One image in [0, 1]. Shape (3, height, width)."""

_DISK_RADIUS = 8
"""Half-width of the grid on which the disk of a defocus is drawn, unless the disk is larger."""


def corrupt(images: Tensor, name: str, severity: int, seed: int) -> Tensor:
    """Corrupts images.

    The result for an image depends only on its pixels, the name, the severity and the seed, and
    not on its batch. Values are truncated to whole numbers, not rounded, as in the published files.

    Args:
        images: Uint8, on any device. The smaller side decides the constants: those of CIFAR-10-C
            below 64 pixels, of Tiny-ImageNet-C below 128, and of ImageNet-C otherwise. Shape
            (samples, 3, height, width).
        name: One of `CORRUPTIONS`.
        severity: 1, mild, to 5, strong.
        seed: Seed of the noise; the other corruptions draw no random numbers.

    Returns:
        Uint8, on the same device. Shape (samples, 3, height, width).

    Raises:
        ConfigError: There is no such corruption or severity, or `images` are not images.
    """
    _check(images, name, severity)
    corrupted = torch.empty_like(images, device="cpu")
    for position, image in enumerate(images.cpu().numpy()):
        change = _choose(image, name, severity, seed)
        values = np.clip(change(image / 255) * 255, 0, 255)
        # A rounding error must not truncate a whole number to the one below.
        corrupted[position] = torch.from_numpy((values + 1e-6).astype(np.uint8))
    return corrupted.to(images.device)


def _check(images: Tensor, name: str, severity: int) -> None:
    if name not in CORRUPTIONS:
        raise ConfigError(f"no corruption {name!r}", f"choose one of {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise ConfigError(f"severity is {severity}", f"choose one of {SEVERITIES}")
    if images.dtype != torch.uint8 or images.shape[1:-2] != (3,):
        raise ConfigError(
            f"images to corrupt are {images.dtype} of shape {tuple(images.shape)}",
            "give torch.uint8 of shape (samples, 3, height, width)",
        )


def _choose(
    image: NDArray[np.uint8], name: str, severity: int, seed: int
) -> Callable[[Pixels], Pixels]:
    """The corruption of one image, with a seeded generator where it needs one."""
    benchmark = int(np.searchsorted(_SMALLEST_SIDES, min(image.shape[1:]), side="right"))
    strength = _STRENGTHS[name][benchmark][severity - 1]
    if name not in _NOISES:
        return partial(_CHANGES[name], strength=strength)
    digest = hashlib.sha256(f"{seed} {name} {severity} ".encode() + image.tobytes()).digest()
    generator = np.random.default_rng(int.from_bytes(digest, "little"))
    return partial(_NOISES[name], strength=strength, generator=generator)


def _gaussian_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    return image + strength * generator.standard_normal(image.shape)


def _shot_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Adds Poisson noise, with `strength` photons for white."""
    return generator.poisson(image * strength) / strength


def _impulse_noise(image: Pixels, strength: float, generator: np.random.Generator) -> Pixels:
    """Replaces a fraction of all values by black or white, with equal probability."""
    draws = generator.random(image.shape)
    return np.where(draws < strength, np.where(draws < strength / 2, 0.0, 1.0), image)


def _gaussian_blur(image: Pixels, strength: float) -> Pixels:
    return gaussian_filter(image, strength, mode="nearest", axes=(1, 2))


def _defocus_blur(image: Pixels, strength: tuple[float, float]) -> Pixels:
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


def _brightness(image: Pixels, strength: float) -> Pixels:
    """Adds to the value of hue, saturation and value (HSV)."""
    value = image.max(axis=0)
    brighter = np.minimum(value + strength, 1)
    # Hue and saturation stay, so all channels scale like the value; black becomes grey.
    ratio = np.divide(brighter, value, where=value > 0, out=np.zeros_like(value))
    return np.where(value > 0, image * ratio, brighter)


def _contrast(image: Pixels, strength: float) -> Pixels:
    mean = image.mean(axis=(1, 2), keepdims=True)
    return (image - mean) * strength + mean


def _saturate(image: Pixels, strength: tuple[float, float]) -> Pixels:
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


def _pixelate(image: Pixels, strength: float) -> Pixels:
    """Reduces the resolution by a factor per side."""
    picture = _to_pillow(image)
    small = tuple(max(int(side * strength), 1) for side in picture.size)
    smaller = picture.resize((small[0], small[1]), Image.Resampling.BOX)
    return _from_pillow(smaller.resize(picture.size, Image.Resampling.BOX))


def _jpeg_compression(image: Pixels, strength: int) -> Pixels:
    """Encodes and decodes the image as JPEG of this quality."""
    file = io.BytesIO()
    _to_pillow(image).save(file, "JPEG", quality=strength)
    with Image.open(file) as picture:
        return _from_pillow(picture)


def _to_pillow(image: Pixels) -> Image.Image:
    return Image.fromarray(np.rint(image.transpose(1, 2, 0) * 255).astype(np.uint8))


def _from_pillow(picture: Image.Image) -> Pixels:
    return np.asarray(picture).transpose(2, 0, 1) / 255


_NOISES: dict[str, Callable[..., Pixels]] = {
    "gaussian_noise": _gaussian_noise,
    "shot_noise": _shot_noise,
    "impulse_noise": _impulse_noise,
}

_CHANGES: dict[str, Callable[..., Pixels]] = {
    "gaussian_blur": _gaussian_blur,
    "defocus_blur": _defocus_blur,
    "brightness": _brightness,
    "contrast": _contrast,
    "saturate": _saturate,
    "pixelate": _pixelate,
    "jpeg_compression": _jpeg_compression,
}

CORRUPTIONS: tuple[str, ...] = (*_NOISES, *_CHANGES)
"""Names of all corruptions."""

_SMALLEST_SIDES = (64, 128)
"""Smallest sides in pixels for the constants of Tiny-ImageNet-C and ImageNet-C."""

_STRENGTHS: dict[str, tuple[tuple[float | tuple[float, float], ...], ...]] = {
    # Per corruption: the five severities of CIFAR-10-C, Tiny-ImageNet-C and ImageNet-C.
    "gaussian_noise": (
        (0.04, 0.06, 0.08, 0.09, 0.10),
        (0.04, 0.08, 0.12, 0.15, 0.18),
        (0.08, 0.12, 0.18, 0.26, 0.38),
    ),
    "shot_noise": (
        (500, 250, 100, 75, 50),
        (250, 100, 50, 30, 15),
        (60, 25, 12, 5, 3),
    ),
    "impulse_noise": (
        (0.01, 0.02, 0.03, 0.05, 0.07),
        (0.01, 0.02, 0.05, 0.08, 0.14),
        (0.03, 0.06, 0.09, 0.17, 0.27),
    ),
    "gaussian_blur": (
        (0.4, 0.6, 0.7, 0.8, 1),
        (0.5, 0.75, 1, 1.25, 1.5),
        (1, 2, 3, 4, 6),
    ),
    "defocus_blur": (
        ((0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)),
        ((0.5, 0.6), (1, 0.1), (1.5, 0.1), (2.5, 0.01), (3, 0.1)),
        ((3, 0.1), (4, 0.5), (6, 0.5), (8, 0.5), (10, 0.5)),
    ),
    "brightness": (
        (0.05, 0.1, 0.15, 0.2, 0.3),
        (0.1, 0.2, 0.3, 0.4, 0.5),
        (0.1, 0.2, 0.3, 0.4, 0.5),
    ),
    "contrast": (
        (0.75, 0.5, 0.4, 0.3, 0.15),
        (0.4, 0.3, 0.2, 0.1, 0.05),
        (0.4, 0.3, 0.2, 0.1, 0.05),
    ),
    "saturate": (
        ((0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (30, 0.2)),
        ((0.3, 0), (0.1, 0), (2, 0), (5, 0.1), (20, 0.2)),
    ),
    "pixelate": (
        (0.95, 0.9, 0.85, 0.75, 0.65),
        (0.9, 0.8, 0.7, 0.6, 0.5),
        (0.6, 0.5, 0.4, 0.3, 0.25),
    ),
    "jpeg_compression": (
        (80, 65, 58, 50, 40),
        (65, 58, 50, 40, 25),
        (25, 18, 15, 10, 7),
    ),
}
