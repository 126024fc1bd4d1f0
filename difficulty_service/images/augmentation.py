"""Random crops and flips that depend only on the seed, the sample and the run."""

import math
import random
from dataclasses import dataclass

MIN_AREA = 0.35
MIN_RATIO, MAX_RATIO = 3 / 4, 4 / 3


@dataclass(frozen=True)
class Augmentation:
    """Options of augmentation.

    Attributes:
        runs: Number of random views of each image, at least 1; runs are numbered from 1.
        seed: Seed of the random crops and flips.
    """

    runs: int
    seed: int = 0


@dataclass(frozen=True)
class Crop:
    """A rectangle inside an image, in pixels, and whether it is mirrored left to right."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool


def draw_crop(height: int, width: int, key: str) -> Crop:
    """Draws 35 to 100 % of the area at an aspect ratio of 3/4 to 4/3, clipped to the image.

    Args:
        height: Height of the image, in pixels.
        width: Width of the image, in pixels.
        key: Seed of this crop: equal keys give equal crops on any machine and in any thread.
    """
    generator = random.Random(key)  # noqa: S311
    area = height * width * generator.uniform(MIN_AREA, 1)
    ratio = math.exp(generator.uniform(math.log(MIN_RATIO), math.log(MAX_RATIO)))
    crop_width = min(width, max(1, round(math.sqrt(area * ratio))))
    crop_height = min(height, max(1, round(math.sqrt(area / ratio))))
    return Crop(
        top=generator.randint(0, height - crop_height),
        left=generator.randint(0, width - crop_width),
        height=crop_height,
        width=crop_width,
        mirrored=bool(generator.getrandbits(1)),
    )


def crop_key(augmentation: Augmentation, sample_id: str, run: int) -> str:
    """Key of one view of one sample; the id comes last because it may contain any character."""
    return f"{augmentation.seed}/{run}/{sample_id}"
