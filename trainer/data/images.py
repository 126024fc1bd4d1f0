"""Images that fit in memory: decoded once, kept and augmented on the device."""

from collections.abc import Iterator, Sequence
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
    num_samples = len(dataset.labels)
    pixels = np.empty((num_samples, 3, fit.height, fit.width), dtype=np.uint8)
    write = partial(_write, pixels, fit)
    failures: list[Failure] = []
    for failed in map_in_order(write, _tasks(dataset, num_samples), num_workers()):
        failures += [(dataset.sample_ids[position], reason) for position, reason in failed]
    if failures:
        raise unreadable(failures, dataset.location)
    return torch.from_numpy(pixels)


def unreadable(failures: Sequence[Failure], location: str) -> DatasetError:
    """The error for images that cannot be used, with the reasons of the first few."""
    shown = "; ".join(f"{sample_id!r}: {reason}" for sample_id, reason in failures[:_SHOWN])
    return DatasetError(
        f"{len(failures)} images of {location!r} cannot be used, first {shown}",
        "repair or remove them; `difficulty score` lists all images that cannot be read in "
        "errors.parquet",
    )


def _tasks(dataset: Dataset, num_samples: int) -> Iterator[tuple[int, list[ImageOpener]]]:
    openers = dataset.open_images(range(num_samples))
    for start in range(0, num_samples, _IMAGES_PER_TASK):
        yield start, list(islice(openers, _IMAGES_PER_TASK))


def _write(
    pixels: NDArray[np.uint8], fit: Fit, task: tuple[int, list[ImageOpener]]
) -> list[tuple[int, str]]:
    """Decodes a task's images into `pixels`; returns position and reason of each failure."""
    start, openers = task
    failed = []
    for position, opener in enumerate(openers, start):
        try:
            pixels[position] = pixels_of(fit.apply(decode(opener, fit.max_pixels)))
        except ImageError as error:
            failed.append((position, failure_reason(error)))
    return failed
