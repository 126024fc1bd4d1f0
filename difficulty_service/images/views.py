"""Random views of an image: crops and mirror images, decided by a seed, the sample and the run."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Literal, TypeAlias

from torch import Tensor

from difficulty_service.backbones.backbone import Preprocessing
from difficulty_service.images.header import DEFAULT_MAX_PIXELS
from difficulty_service.images.preparation import stack, to_view
from difficulty_service.images.resizing import (
    DecodedImage,
    crop,
    mirror,
    resize,
    shift,
    size_of,
    to_tensor,
)

ViewKind: TypeAlias = Literal["crop", "flip_crop", "random_resized_crop"]
"""Which part of the image a view shows."""

MIN_AREA = 0.35
"""Smallest share of the area of a `crop`."""

MIN_AREA_OF_TRAINING = 0.08
"""Smallest share of the area of a `random_resized_crop`, as in Szegedy et al. (2015)."""

MIN_RATIO, MAX_RATIO = 3 / 4, 4 / 3
"""Width over height of a crop."""

SIDES_PER_BORDER = 8
"""A `flip_crop` is moved by up to one in so many of a side: 4 of the 32 pixels of CIFAR."""


@dataclass(frozen=True)
class Augmentation:
    """Options of augmentation: random views of each image, numbered from 1, at least one."""

    runs: int
    seed: int = 0
    kind: ViewKind = "crop"


@dataclass(frozen=True)
class CropWindow:
    """A rectangle inside an image, in pixels, and whether it is mirrored left to right."""

    top: int
    left: int
    height: int
    width: int
    mirrored: bool


def draw_crop(height: int, width: int, key: str, min_area: float = MIN_AREA) -> CropWindow:
    """Draws a share of the area up to all at an aspect ratio of 3/4 to 4/3, clipped to the image.

    The share is uniform, and so is the logarithm of the ratio. Equal keys give equal crops on any
    machine and in any thread.
    """
    generator = random.Random(key)  # noqa: S311
    area = height * width * generator.uniform(min_area, 1)
    ratio = math.exp(generator.uniform(math.log(MIN_RATIO), math.log(MAX_RATIO)))
    crop_width = min(width, max(1, round(math.sqrt(area * ratio))))
    crop_height = min(height, max(1, round(math.sqrt(area / ratio))))
    return CropWindow(
        top=generator.randint(0, height - crop_height),
        left=generator.randint(0, width - crop_width),
        height=crop_height,
        width=crop_width,
        mirrored=bool(generator.getrandbits(1)),
    )


def draw_shift(height: int, width: int, key: str) -> tuple[int, int, bool]:
    """Draws by how many pixels an image is moved down and right, and whether it is mirrored.

    Moving an image by up to an eighth of its sides shows what a window of its size shows that is
    cropped from the image with a black border of that width.
    """
    generator = random.Random(key)  # noqa: S311
    rows, columns = height // SIDES_PER_BORDER, width // SIDES_PER_BORDER
    down, right = generator.randint(-rows, rows), generator.randint(-columns, columns)
    return down, right, bool(generator.getrandbits(1))


def to_views(
    decoded: DecodedImage,
    preprocessing: Preprocessing,
    sample_id: str,
    augmentation: Augmentation,
    max_pixels: int = DEFAULT_MAX_PIXELS,
) -> Tensor:
    """All random views of an image.

    A view depends only on the augmentation's kind and seed, the sample's id and the number of the
    run, so the first views are the same however many runs there are. Uint8, stored in memory as
    (runs, height, width, 3). Shape (runs, 3, height, width).

    Raises:
        ImageError: An image is too elongated for a `flip_crop`; see `to_view`.
    """
    view = partial(VIEWS[augmentation.kind], decoded, preprocessing, max_pixels)
    # The id comes last because it may contain any character.
    keys = (f"{augmentation.seed}/{run}/{sample_id}" for run in range(1, augmentation.runs + 1))
    return stack([view(key) for key in keys])


def apply_crop(decoded: DecodedImage, chosen: CropWindow, preprocessing: Preprocessing) -> Tensor:
    """Crops an image, resizes it to the input, mirrors it if needed. Shape (3, height, width)."""
    view = crop(decoded, chosen.top, chosen.left, chosen.height, chosen.width)
    view = resize(view, *preprocessing.shape, preprocessing.interpolation)
    return to_tensor(mirror(view) if chosen.mirrored else view)


def _resized_crop(
    min_area: float, decoded: DecodedImage, preprocessing: Preprocessing, _: int, key: str
) -> Tensor:
    chosen = draw_crop(*size_of(decoded), key, min_area)
    return apply_crop(decoded, chosen, preprocessing)


def _flip_crop(
    decoded: DecodedImage, preprocessing: Preprocessing, max_pixels: int, key: str
) -> Tensor:
    """The image moved and mirrored, then prepared as one without augmentation."""
    down, right, mirrored = draw_shift(*size_of(decoded), key)
    seen = shift(decoded, down, right)
    return to_view(mirror(seen) if mirrored else seen, preprocessing, max_pixels)


VIEWS: Mapping[ViewKind, Callable[[DecodedImage, Preprocessing, int, str], Tensor]] = {
    "crop": partial(_resized_crop, MIN_AREA),
    "flip_crop": _flip_crop,
    "random_resized_crop": partial(_resized_crop, MIN_AREA_OF_TRAINING),
}
"""What makes a view of each kind, of an image and a key."""
