"""Common corruptions of test images, at five severities (Hendrycks & Dietterich, ICLR 2019).

All nineteen: fifteen of the benchmarks, and the four that they keep for validation. The constants
are those of the authors' three benchmarks, of which one is chosen by the size of the images; the
random numbers differ, and so does the frost, which is drawn here, and photographed there.
"""

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import ConfigError
from difficulty_service.images.corruption_strengths import SMALLEST_SIDES, STRENGTHS
from difficulty_service.images.corruptions import pixels, weather
from difficulty_service.images.corruptions.pixels import Pixels
from difficulty_service.images.resizing import resize_shorter_side, to_tensor

SEVERITIES = (1, 2, 3, 4, 5)

_RANDOM: dict[str, Callable[..., Pixels]] = {
    "gaussian_noise": pixels.gaussian_noise,
    "shot_noise": pixels.shot_noise,
    "impulse_noise": pixels.impulse_noise,
    "speckle_noise": pixels.speckle_noise,
    "glass_blur": pixels.glass_blur,
    "motion_blur": pixels.motion_blur,
    "snow": weather.snow,
    "frost": weather.frost,
    "fog": weather.fog,
    "spatter": weather.spatter,
    "elastic_transform": pixels.elastic_transform,
}

_FIXED: dict[str, Callable[..., Pixels]] = {
    "gaussian_blur": pixels.gaussian_blur,
    "defocus_blur": pixels.defocus_blur,
    "zoom_blur": pixels.zoom_blur,
    "brightness": pixels.brightness,
    "contrast": pixels.contrast,
    "saturate": pixels.saturate,
    "pixelate": pixels.pixelate,
    "jpeg_compression": pixels.jpeg_compression,
}

CORRUPTIONS: tuple[str, ...] = (*_RANDOM, *_FIXED)
"""Names of all corruptions."""


LARGEST_SIDE = 256
"""Shorter side of an image in pixels above which it is reduced first, as those of ImageNet-C."""


@dataclass(frozen=True)
class Corruption:
    """One corruption of all images of a dataset; its severity is from 1, mild, to 5, strong."""

    name: str
    severity: int
    seed: int = 0

    def __str__(self) -> str:
        """Name and severity, as `parse_corruption` reads them."""
        return f"{self.name}:{self.severity}"

    def apply(self, image: Tensor) -> Tensor:
        """The corrupted image, reduced where its shorter side is above `LARGEST_SIDE`.

        Shape (3, rows, columns).
        """
        if min(image.shape[1:]) > LARGEST_SIDE:
            image = to_tensor(resize_shorter_side(image, LARGEST_SIDE, "bilinear"))
        return corrupt(image[None], self.name, self.severity, self.seed)[0]


def parse_corruption(text: str, seed: int) -> Corruption:
    """Reads name and severity, such as "fog:3".

    Raises:
        ConfigError: There is no such corruption or severity.
    """
    match = re.fullmatch(r"(\w+):(\d)", text)
    if match is None:
        raise ConfigError(
            f"corruption {text!r} is not a name and a severity", 'give them as in "fog:3"'
        )
    name, severity = match[1], int(match[2])
    _check_choice(name, severity)
    return Corruption(name, severity, seed)


def corrupt(images: Tensor, name: str, severity: int, seed: int) -> Tensor:
    """Corrupts images.

    The result for an image depends only on its pixels, the name, the severity and the seed, and
    not on its batch. Values are truncated to whole numbers, not rounded, as in the published files.

    The smaller side of the images, uint8 on any device, decides the constants: those of CIFAR-10-C
    below 64 pixels, of Tiny-ImageNet-C below 128, and of ImageNet-C otherwise. The result is of the
    same type, shape (samples, 3, height, width) and device.

    Raises:
        ConfigError: There is no such corruption or severity, or `images` are not images.
    """
    _check_choice(name, severity)
    if images.dtype != torch.uint8 or images.shape[1:-2] != (3,):
        raise ConfigError(
            f"images to corrupt are {images.dtype} of shape {tuple(images.shape)}",
            "give torch.uint8 of shape (samples, 3, height, width)",
        )
    corrupted = torch.empty_like(images, device="cpu")
    for position, image in enumerate(images.cpu().numpy()):
        change = _choose(image, name, severity, seed)
        values = np.clip(change(image / 255) * 255, 0, 255)
        # A rounding error must not truncate a whole number to the one below.
        corrupted[position] = torch.from_numpy((values + 1e-6).astype(np.uint8))
    return corrupted.to(images.device)


def _check_choice(name: str, severity: int) -> None:
    if name not in CORRUPTIONS:
        raise ConfigError(f"no corruption {name!r}", f"choose one of {', '.join(CORRUPTIONS)}")
    if severity not in SEVERITIES:
        raise ConfigError(f"severity is {severity}", f"choose one of {SEVERITIES}")


def _choose(
    image: NDArray[np.uint8], name: str, severity: int, seed: int
) -> Callable[[Pixels], Pixels]:
    """The corruption of one image, with a seeded generator where it needs one."""
    benchmark = int(np.searchsorted(SMALLEST_SIDES, min(image.shape[1:]), side="right"))
    strength = STRENGTHS[name][benchmark][severity - 1]
    if name in _FIXED:
        return partial(_FIXED[name], strength=strength)
    digest = hashlib.sha256(f"{seed} {name} {severity} ".encode() + image.tobytes()).digest()
    generator = np.random.default_rng(int.from_bytes(digest, "little"))
    return partial(_RANDOM[name], strength=strength, generator=generator)
