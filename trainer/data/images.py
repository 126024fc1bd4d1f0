"""Images that fit in memory: decoded once, kept and augmented on the device."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.errors import DatasetError, ImageError
from difficulty_service.runtime.parallel import map_in_order, num_workers
from trainer.data.augmentation import Augment
from trainer.data.decoding import Fit, decode, failure_reason, pixels_of

_IMAGES_PER_TASK = 64
_SHOWN = 5

Failure = tuple[str, str]
"""Id of an image that cannot be used, and the reason."""


@dataclass(frozen=True)
class MemoryImages:
    """Decoded images of a dataset, or of one split of it.

    Attributes:
        pixels: Images of the whole dataset, on the device, shared by its splits. Uint8 of shape
            (all samples, 3, height, width).
        positions: Positions of this split's samples, on the CPU. Shape (samples,).
        augment: Augmentation of a batch by its draws.
    """

    pixels: Tensor
    positions: Tensor
    augment: Augment

    def select(self, positions: Tensor) -> "MemoryImages":
        """The images of one split; positions of shape (samples,)."""
        return replace(self, positions=self.positions[positions])

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Yields batches of images; see `trainer.samples.Inputs`."""
        device = self.pixels.device
        for batch in plan:
            images = self.pixels[self.positions[batch].to(device)]
            yield images if draws is None else self.augment(images, draws[batch].to(device))


def decode_images(dataset: Dataset, fit: Fit) -> Tensor:
    """Decodes all images of a dataset, in its order, on all cores.

    Args:
        dataset: Dataset of images.
        fit: Size of the result and pixel limit.

    Returns:
        Uint8. Shape (samples, 3, height, width).

    Raises:
        DatasetError: Images cannot be read, or have another size and may not be resized.
    """
    pixels, failures = decode_readable_images(dataset, fit)
    if failures:
        raise unreadable(named(failures, dataset), dataset.location)
    return pixels


def decode_readable_images(dataset: Dataset, fit: Fit) -> tuple[Tensor, dict[int, str]]:
    """As `decode_images`, for a dataset with images that cannot be read.

    Returns:
        Pixels, which are undefined for those images, of shape (samples, 3, height, width); and the
        reason for each of those images by its position.

    Raises:
        DatasetError: Images have another size and may not be resized.
    """
    num_samples = len(dataset.labels)
    pixels = np.empty((num_samples, 3, fit.height, fit.width), dtype=np.uint8)
    write = partial(_write, pixels, fit)
    failures: dict[int, str] = {}
    misfits: dict[int, str] = {}
    for failed, misfit in map_in_order(write, _tasks(dataset), num_workers()):
        failures |= failed
        misfits |= misfit
    if misfits:
        raise unreadable(named(misfits, dataset), dataset.location)
    return torch.from_numpy(pixels), failures


def find_unreadable(dataset: Dataset, max_pixels: int) -> dict[int, str]:
    """Decodes every image on all cores and keeps none of them.

    Returns:
        The reason for each image that cannot be read by its position.
    """
    check = partial(_check, max_pixels)
    failures: dict[int, str] = {}
    for failed in map_in_order(check, _tasks(dataset), num_workers()):
        failures |= failed
    return failures


def named(failures: Mapping[int, str], dataset: Dataset) -> list[Failure]:
    """The ids of images by their positions, each with its reason."""
    return [(dataset.sample_ids[position], reason) for position, reason in failures.items()]


def unreadable(failures: Sequence[Failure], location: str) -> DatasetError:
    """The error for images that cannot be used, with the reasons of the first few."""
    shown = "; ".join(f"{sample_id!r}: {reason}" for sample_id, reason in failures[:_SHOWN])
    return DatasetError(
        f"{len(failures)} images of {location!r} cannot be used, first {shown}",
        "repair or remove them; `difficulty score` lists all images that cannot be read in "
        "errors.parquet",
    )


def _tasks(dataset: Dataset) -> Iterator[tuple[int, list[ImageOpener]]]:
    num_samples = len(dataset.labels)
    openers = dataset.open_images(range(num_samples))
    for start in range(0, num_samples, _IMAGES_PER_TASK):
        yield start, list(islice(openers, _IMAGES_PER_TASK))


def _write(
    pixels: NDArray[np.uint8], fit: Fit, task: tuple[int, list[ImageOpener]]
) -> tuple[dict[int, str], dict[int, str]]:
    """Decodes a task's images into `pixels`; returns unreadable images and those that misfit."""
    start, openers = task
    failures: dict[int, str] = {}
    misfits: dict[int, str] = {}
    for position, opener in enumerate(openers, start):
        try:
            image = decode(opener, fit.max_pixels)
        except ImageError as error:
            failures[position] = failure_reason(error)
            continue
        try:
            pixels[position] = pixels_of(fit.apply(image))
        except ImageError as error:
            misfits[position] = failure_reason(error)
    return failures, misfits


def _check(max_pixels: int, task: tuple[int, list[ImageOpener]]) -> dict[int, str]:
    start, openers = task
    failures: dict[int, str] = {}
    for position, opener in enumerate(openers, start):
        try:
            decode(opener, max_pixels)
        except ImageError as error:
            failures[position] = failure_reason(error)
    return failures
