"""The backbone of a dataset whose user names none: the best that can be had.

Where its weights are neither here nor on the hub, a network of the package takes its place, chosen
by the size of the images, or where nobody has seen them yet the one for photographs.
"""

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from difficulty_service.backbones import BACKBONES, DEFAULT_BACKBONE
from difficulty_service.backbones.downloads import DEFAULT_DOWNLOADS, Downloads
from difficulty_service.backbones.weights_files import (
    CLIP_FILENAMES,
    locate_weights,
    require_obtainable,
)
from difficulty_service.base.errors import BackboneError, ImageError
from difficulty_service.datasets.sample import Dataset
from difficulty_service.features.description import ImageSizes
from difficulty_service.images.header import DEFAULT_MAX_PIXELS, open_header, read_encoded

SMALL, LARGE = "builtin", "builtin-photos"
LEAST_SIDE = 64
"""Median of the shorter sides, in pixels, from which on images are encoded as photographs."""

NUM_PLACES, IMAGES_EACH = 8, 4
"""Consecutive images are read fast, and several places see several classes of a sorted dataset."""


@dataclass(frozen=True)
class ChosenBackbone:
    """A backbone that nobody named.

    Attributes:
        warnings: Why it is not the usual one, one sentence each.
        sizes: Sizes of images by which it was chosen; None where they did not matter.
    """

    name: str
    warnings: Sequence[str] = ()
    sizes: ImageSizes | None = None


def default_backbone(
    dataset: Dataset,
    max_pixels: int = DEFAULT_MAX_PIXELS,
    downloads: Downloads = DEFAULT_DOWNLOADS,
) -> ChosenBackbone:
    """The default backbone, downloaded where it is not cached, or else one of the package."""
    try:
        locate_weights(None, DEFAULT_BACKBONE, _repository(), CLIP_FILENAMES, downloads)
    except BackboneError as error:
        sizes = measure_sizes(dataset, max_pixels)
        name = packaged_backbone(sizes)
        return ChosenBackbone(name, [f"{error.problem}; {_reason(name, sizes)}"], sizes)
    return ChosenBackbone(DEFAULT_BACKBONE)


def default_of_later_images() -> ChosenBackbone:
    """The default backbone of images that are still to come, as to a service.

    Nothing is downloaded; the hub is asked once where the weights are not cached.
    """
    try:
        require_obtainable(DEFAULT_BACKBONE, _repository(), CLIP_FILENAMES)
    except BackboneError as error:
        return ChosenBackbone(LARGE, [f"{error.problem}; {_start(LARGE)}"])
    return ChosenBackbone(DEFAULT_BACKBONE)


def _repository() -> str:
    return BACKBONES[DEFAULT_BACKBONE].repository or ""


def packaged_backbone(sizes: ImageSizes | None) -> str:
    """The network of the package that suits images of these sizes; None for unknown ones."""
    return LARGE if sizes is not None and sizes.median_side >= LEAST_SIDE else SMALL


def _start(name: str) -> str:
    return f"using the bundled {name} instead of {DEFAULT_BACKBONE} (weaker, works offline)"


def _reason(name: str, sizes: ImageSizes | None) -> str:
    start = _start(name)
    if sizes is None:
        return f"{start}; none of the images that were looked at could be read"
    limit = f"at least {LEAST_SIDE}" if name == LARGE else f"less than {LEAST_SIDE}"
    images = f"{sizes.num_images} image{'s' if sizes.num_images > 1 else ''}"
    return (
        f"{start}, which is made for images of {limit} pixels: the median shorter side of "
        f"{images} is {sizes.median_side:g}"
    )


def measure_sizes(dataset: Dataset, max_pixels: int = DEFAULT_MAX_PIXELS) -> ImageSizes | None:
    """Sizes of some images from all over a dataset; None where none of them can be read."""
    sides = list(_shorter_sides(dataset, max_pixels))
    if not sides:
        return None
    return ImageSizes(num_images=len(sides), median_side=statistics.median(sides))


def _shorter_sides(dataset: Dataset, max_pixels: int) -> Iterator[int]:
    number = len(dataset.labels)
    starts = np.linspace(0, max(0, number - IMAGES_EACH), NUM_PLACES).astype(int)
    end = 0
    for start in starts.tolist():
        positions = range(max(start, end), min(start + IMAGES_EACH, number))
        end = max(end, positions.stop)
        for opener in dataset.open_images(positions):
            try:
                yield min(open_header(read_encoded(opener, max_pixels), max_pixels).size)
            except ImageError:
                continue
