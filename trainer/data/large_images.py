"""Images that do not fit in memory: decoded and changed in worker processes, batch by batch."""

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

Order = tuple[NDArray[np.int64], NDArray[np.float64] | None]
"""What a worker is asked for: positions in the dataset, and a row of draws for each or none."""

Answer = Tensor | list[tuple[int, str]]
"""The batch; or positions and reasons of what cannot be used, as errors lose their form on the
way between processes."""


@dataclass(frozen=True)
class BatchReader:
    """What each worker process holds; indexed by an order, gives the batch.

    Attributes:
        open_images: Of the dataset.
        fit: How an image gets its size where it is not cropped at random.
        augmentation: What is done where there are draws.
        crop_padding: Of a "flip_crop".
    """

    open_images: Callable[[range], Iterator[ImageOpener]]
    fit: Fit
    augmentation: Augmentation = "none"
    crop_padding: int = 0

    def __getitem__(self, order: Order) -> Answer:
        """Uint8 of shape (samples, 3, height, width), or what failed."""
        positions, values = order
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
    """Images of a dataset, or of one split of it, read anew each time.

    Rows of a table are found by reading their row group, so shuffled training on images inside
    tables is slow; folders and tars give each image at once.

    Attributes:
        dataset: Where the images are.
        positions: Of this split's samples in it, on the CPU. Shape (samples,).
        reader: What a worker does.
        device: Where batches go.
        workers: Number of processes.
    """

    dataset: Dataset
    positions: Tensor
    reader: BatchReader
    device: torch.device
    workers: int
    _orders: list[Order] = field(default_factory=list, init=False, repr=False)

    def select(self, positions: Tensor) -> "LargeImages":
        """One split of them; positions of shape (samples,)."""
        return replace(self, positions=self.positions[positions])

    def batches(self, plan: Sequence[Tensor], draws: Tensor | None) -> Iterator[Tensor]:
        """As `trainer.samples.Inputs` says.

        Processes that serve training live on until the next epoch; others end with the pass.

        Raises:
            DatasetError: An image of the batch cannot be read, or has another size and may not
                be resized.
        """
        orders = [
            (
                self.positions[batch].numpy(),
                None if draws is None else draws[batch].double().numpy(),
            )
            for batch in plan
        ]
        if draws is None:
            loader = self._loader(orders, persistent=False)
        else:
            self._orders[:] = orders
            loader = self._training_loader
        for answer in loader:
            if isinstance(answer, list):
                named = [(self.dataset.sample_ids[position], reason) for position, reason in answer]
                raise unreadable(named, self.dataset.location)
            yield answer.to(self.device, non_blocking=True)

    @cached_property
    def _training_loader(self) -> "DataLoader[Answer]":
        return self._loader(self._orders, persistent=True)

    def _loader(self, orders: list[Order], *, persistent: bool) -> "DataLoader[Answer]":
        return DataLoader(
            cast("Any", self.reader),
            batch_size=None,  # an order is a whole batch already
            sampler=orders,
            num_workers=self.workers,
            collate_fn=_as_it_is,
            pin_memory=self.device.type == "cuda",
            multiprocessing_context="spawn",  # a fork would inherit threads and CUDA
            generator=torch.Generator(),  # leaves the run's own random numbers alone
            persistent_workers=persistent,
        )


def _as_it_is(answer: Answer) -> Answer:
    return answer
