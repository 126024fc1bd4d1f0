"""Images that fit in memory: decoded once, kept and augmented on the device.

Images that do not fit in memory: decoded and augmented by worker processes, batch by batch.

The images of a dataset that can be read, decoded once or batch by batch.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import islice
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader

from difficulty_service.base.errors import DatasetError, ImageError
from difficulty_service.base.threads import map_in_order, num_workers
from difficulty_service.datasets.sample import Dataset, ImageOpener
from trainer.config import Augmentation, ImageData
from trainer.data.augmentation import Augment, augmentation_of, crop_boxes, flip
from trainer.data.decoding import Fit, decode, failure_reason, pixels_of
from trainer.data.splits import skipped_entries, warnings_of
from trainer.samples import Samples, SkippedEntry

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
    """Decodes all images of a dataset, in its order. Uint8, shape (samples, 3, height, width)."""
    pixels, failures = decode_readable_images(dataset, fit)
    if failures:
        raise unreadable(named(failures, dataset), dataset.location)
    return pixels


def decode_readable_images(dataset: Dataset, fit: Fit) -> tuple[Tensor, dict[int, str]]:
    """As `decode_images`, for a dataset with images that cannot be read.

    Returns:
        Pixels, which are undefined for those images, of shape (samples, 3, height, width); and the
        reason for each of those images by its position.
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


BatchRequest = tuple[NDArray[np.int64], NDArray[np.float64] | None]
"""Positions in the dataset, and a row of draws for each position or None."""

BatchResult = Tensor | list[tuple[int, str]]
"""The batch; or position and reason of each failure, since errors do not survive the transfer
between processes."""


@dataclass(frozen=True)
class BatchReader:
    """Reads batches in a worker process; as a dataset of `DataLoader`, indexed by a request."""

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

    Reading a row of a table reads its whole row group, so shuffled training on images inside tables
    is slow; folders and tar files have random access. Positions are those of `MemoryImages`.
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


MAX_BYTES_IN_MEMORY = 4 << 30
"""Maximum size of the decoded images of a dataset, where the recipe does not decide."""


@dataclass(frozen=True)
class ImageLoading:
    """The size, storage and augmentation of the images of a dataset."""

    config: ImageData
    fit: Fit
    device: torch.device
    augmentation: Augmentation = "none"

    def open(self, dataset: Dataset) -> "OpenedImages":
        """Opens the images of a dataset that can be read, decoded now or batch by batch."""
        num_samples = len(dataset.labels)
        padding = self.config.crop_padding
        skips = self.config.on_error == "skip"
        failures: dict[int, str] = {}
        everything = torch.arange(num_samples)
        inputs: MemoryImages | LargeImages
        if self._fits_in_memory(num_samples):
            if skips:
                pixels, failures = decode_readable_images(dataset, self.fit)
            else:
                pixels = decode_images(dataset, self.fit)
            augment = augmentation_of(self.augmentation, padding)
            inputs = MemoryImages(pixels.to(self.device), everything, augment)
        else:
            failures = find_unreadable(dataset, self.fit.max_pixels) if skips else {}
            reader = BatchReader(dataset.open_images, self.fit, self.augmentation, padding)
            workers = self.config.workers or num_workers()
            inputs = LargeImages(dataset, everything, reader, self.device, workers)
        return _without(failures, dataset, inputs)

    def _fits_in_memory(self, num_samples: int) -> bool:
        if self.config.in_memory is not None:
            return self.config.in_memory
        # Crops must come from the whole image at its full resolution.
        if self.augmentation == "random_resized_crop" and self.fit.resizes:
            return False
        return num_samples * 3 * self.fit.height * self.fit.width <= MAX_BYTES_IN_MEMORY


@dataclass(frozen=True)
class OpenedImages:
    """The images of a dataset that can be read."""

    samples: Samples
    inputs: MemoryImages | LargeImages

    def select(self, positions: Tensor) -> Samples:
        """Some of the samples; only the whole dataset says what is skipped."""
        ids = [self.samples.sample_ids[position] for position in positions.tolist()]
        return replace(
            self.samples,
            sample_ids=ids,
            labels=self.samples.labels[positions],
            inputs=self.inputs.select(positions),
            skipped=(),
            warnings=(),
        )


def _without(
    failures: Mapping[int, str], dataset: Dataset, inputs: MemoryImages | LargeImages
) -> OpenedImages:
    """The samples of a dataset but for those whose images cannot be read."""
    if len(failures) == len(dataset.labels):
        raise unreadable(named(failures, dataset), dataset.location)
    ids, labels = dataset.sample_ids, torch.from_numpy(dataset.labels).long()
    warnings = warnings_of(dataset)
    if failures:
        kept = torch.tensor([row for row in range(len(labels)) if row not in failures])
        ids, labels = [ids[row] for row in kept.tolist()], labels[kept]
        inputs = inputs.select(kept)
        first = next(iter(failures))
        warnings += (
            f"{dataset.location}: {len(failures):,} of {len(dataset.labels):,} images cannot be "
            f"read and are skipped, first {dataset.sample_ids[first]!r}: {failures[first]}",
        )
    bad = [SkippedEntry(dataset.location, *failure) for failure in named(failures, dataset)]
    skipped = [*skipped_entries(dataset), *bad]
    samples = Samples(ids, labels, dataset.class_names, inputs, skipped, warnings)
    return OpenedImages(samples, inputs)
