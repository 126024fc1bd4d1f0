"""Images that do not fit in memory: decoded and augmented by worker processes, batch by batch."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.errors import ImageError
from trainer.config import Augmentation
from trainer.data.augmentation import augmentation_of, crop_boxes, flip
from trainer.data.decoding import Fit, decode, failure_reason, pixels_of
from trainer.data.images import unreadable

BatchRequest = tuple[NDArray[np.int64], NDArray[np.float64] | None]
"""Positions in the dataset, and a row of draws for each position or None."""

BatchResult = Tensor | list[tuple[int, str]]
"""The batch; or position and reason of each failure, since errors do not survive the transfer
between processes."""


@dataclass(frozen=True)
class BatchReader:
    """Reads batches in a worker process; as a dataset of `DataLoader`, indexed by a request.

    Attributes:
        open_images: Opens a range of images of the dataset.
        fit: Size of images that are not cropped at random, and pixel limit.
        augmentation: Augmentation applied where there are draws.
        crop_padding: Width in pixels of the black border added before a "flip_crop".
    """

    open_images: Callable[[range], Iterator[ImageOpener]]
    fit: Fit
    augmentation: Augmentation = "none"
    crop_padding: int = 0

    def __getitem__(self, request: BatchRequest) -> BatchResult:
        """The batch, uint8 of shape (samples, 3, height, width), or the failures."""
        positions, values = request
        draws = None if values is None else torch.from_numpy(values)
        pixels = np.empty((len(positions), 3, self.fit.height, self.fit.width), dtype=np.uint8)
        failed = []
        for row, position in enumerate(positions.tolist()):
            try:
                opener = next(self.open_images(range(position, position + 1)))
                image = decode(opener, self.fit.max_pixels)
                own = None if draws is None else draws[row : row + 1]
                pixels[row] = pixels_of(self._resize(image, own))
            except ImageError as error:
                failed.append((position, failure_reason(error)))
        return failed or self._augment(torch.from_numpy(pixels), draws)

    def _resize(self, image: Image.Image, draws: Tensor | None) -> Image.Image:
        if draws is None or self.augmentation != "random_resized_crop":
            return self.fit.apply(image)
        left, top, right, bottom = crop_boxes(draws, image.height, image.width)[0].tolist()
        return image.resize(
            (self.fit.width, self.fit.height),
            Image.Resampling.BILINEAR,
            box=(left, top, min(right, image.width), min(bottom, image.height)),
        )

    def _augment(self, images: Tensor, draws: Tensor | None) -> Tensor:
        if draws is None:
            return images
        if self.augmentation == "random_resized_crop":
            return flip(images, draws)
        return augmentation_of(self.augmentation, self.crop_padding)(images, draws)


@dataclass(frozen=True)
class LargeImages:
    """Images of a dataset, or of one split of it, read from disk in every epoch.

    Reading a row of a table reads its whole row group, so shuffled training on images inside
    tables is slow; folders and tar files have random access.

    Attributes:
        dataset: Dataset of images.
        positions: Positions of this split's samples, on the CPU. Shape (samples,).
        reader: Reader of the worker processes.
        device: Device of the batches.
        workers: Number of worker processes.
    """

    dataset: Dataset
    positions: Tensor
    reader: BatchReader
    device: torch.device
    workers: int
    _requests: list[BatchRequest] = field(default_factory=list, init=False, repr=False)

    def select(self, positions: Tensor) -> "LargeImages":
        """The images of one split; positions of shape (samples,)."""
        return replace(self, positions=self.positions[positions])

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """Yields batches of images; see `trainer.samples.Inputs`.

        Worker processes for training stay alive between epochs; others end with the pass.

        Raises:
            DatasetError: An image of the batch cannot be read, or has another size and may not
                be resized.
        """
        requests = [
            (
                self.positions[batch].numpy(),
                None if draws is None else draws[batch].double().numpy(),
            )
            for batch in plan
        ]
        if draws is None:
            loader = self._loader(requests, persistent=False)
        else:
            self._requests[:] = requests
            loader = self._training_loader
        for result in loader:
            if isinstance(result, list):
                ids = self.dataset.sample_ids
                failures = [(ids[position], reason) for position, reason in result]
                raise unreadable(failures, self.dataset.location)
            yield result.to(self.device, non_blocking=True)

    @cached_property
    def _training_loader(self) -> "DataLoader[BatchResult]":
        return self._loader(self._requests, persistent=True)

    def _loader(
        self, requests: list[BatchRequest], *, persistent: bool
    ) -> "DataLoader[BatchResult]":
        return DataLoader(
            cast("Any", self.reader),
            batch_size=None,  # a request is already a whole batch
            sampler=requests,
            num_workers=self.workers,
            collate_fn=_identity,
            pin_memory=self.device.type == "cuda",
            multiprocessing_context="spawn",  # a fork would inherit threads and CUDA
            generator=torch.Generator(),  # does not change the state of the global generator
            persistent_workers=persistent,
        )


def _identity(result: BatchResult) -> BatchResult:
    return result
