"""Images that can be read, decoded as in scoring to RGB pixels of the size that a model takes.

Those that fit in memory are decoded once, kept and augmented on the device; others are decoded and
augmented by worker processes, batch by batch.
"""

import json
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

from difficulty_service.base import apart
from difficulty_service.base.device_copies import send
from difficulty_service.base.errors import DatasetError, ImageError, Setting
from difficulty_service.base.threads import map_in_order, num_workers_here
from difficulty_service.datasets.sample import Dataset, ImageOpener
from difficulty_service.images.header import (
    DEFAULT_MAX_PIXELS,
    decode_to_pil,
    open_header,
    read_encoded,
)
from difficulty_service.images.pixels import Pixels
from trainer.config import Augmentation, ImageData
from trainer.data.augmentation import Augment, augmentation_of, crop_boxes, mirror
from trainer.data.splits import skipped_entries, warnings_of
from trainer.data.unreadable import find_once
from trainer.samples import Samples, SkippedEntry


@dataclass(frozen=True)
class Fit:
    """How a whole image is brought to a given size.

    Attributes:
        height: Height of the result, in pixels.
        width: Width of the result, in pixels.
        margin: Factor by which the resized image exceeds the result, which is its centre.
        resizes: Whether an image of another size is resized; otherwise it is an error.
        max_pixels: Maximum number of pixels of an image before it is resized.
        pixels: What is seen of more than eight bits, many bands and pages; None for the usual.
    """

    height: int
    width: int
    margin: float = 1.0
    resizes: bool = True
    max_pixels: int = DEFAULT_MAX_PIXELS
    pixels: Pixels | None = None

    def apply(self, image: Image.Image) -> Image.Image:
        """Resizes an image and cuts out its centre; one of the right size is returned unchanged."""
        width, height = image.size
        if (height, width) == (self.height, self.width):
            return image
        if not self.resizes:
            raise ImageError(
                f"{width} x {height} pixels, where the first image has {self.width} x "
                f"{self.height}",
                "set data.image_size in the recipe to resize all images",
            )
        scale = self.margin * max(self.height / height, self.width / width)
        # Equal to resizing the whole image and then cropping it, with less work.
        across, down = self.width / scale, self.height / scale
        left, top = (width - across) / 2, (height - down) / 2
        box = (max(left, 0), max(top, 0), min(left + across, width), min(top + down, height))
        return image.resize((self.width, self.height), Image.Resampling.BILINEAR, box=box)


def decode(
    opener: ImageOpener, max_pixels: int = DEFAULT_MAX_PIXELS, pixels: Pixels | None = None
) -> Image.Image:
    """Reads and decodes the first frame of an image, or the chosen page: RGB, eight bits, upright.

    Images of more pixels are refused by their header.

    Raises:
        ImageError: The file cannot be read, or the image is of a format that is not accepted,
            truncated, damaged or too large.
    """
    data = read_encoded(opener, max_pixels)
    # Always by PIL: resizing by PIL keeps the antialiasing that earlier runs were trained with.
    return decode_to_pil(open_header(data, max_pixels), pixels)


def failure_reason(error: ImageError) -> str:
    """The message of an error, with settings written as keys of a recipe."""
    return error.message(_as_recipe_key)


def pixels_of(image: Image.Image) -> NDArray[np.uint8]:
    """Uint8 values of an RGB image. Shape (3, height, width)."""
    return np.asarray(image).transpose(2, 0, 1)


def _as_recipe_key(setting: Setting) -> str:
    key = f"data.{setting.parameter}"
    return key if setting.value is None else f"{key} = {json.dumps(setting.value)}"


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
            images = self.pixels[send(self.positions[batch], device)]
            yield images if draws is None else self.augment(images, send(draws[batch], device))


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
    return torch.from_numpy(pixels), find_unreadable(dataset, fit, pixels)


def find_unreadable(
    dataset: Dataset, fit: Fit, pixels: NDArray[np.uint8] | None = None
) -> dict[int, str]:
    """Decodes every image, into pixels if any; gives the unreadable, with the reason of each."""
    failures: dict[int, str] = {}
    misfits: dict[int, str] = {}
    for task in map_in_order(partial(_decode, pixels, fit), _tasks(dataset), num_workers_here()):
        failures |= task[0]
        misfits |= task[1]
    if misfits:
        raise unreadable(named(misfits, dataset), dataset.location)
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


def _decode(
    pixels: NDArray[np.uint8] | None, fit: Fit, task: tuple[int, list[ImageOpener]]
) -> tuple[dict[int, str], dict[int, str]]:
    """Decodes a task's images, into pixels if any; returns the unreadable and those that misfit."""
    start, openers = task
    failures: dict[int, str] = {}
    misfits: dict[int, str] = {}
    for position, opener in enumerate(openers, start):
        try:
            image = decode(opener, fit.max_pixels, fit.pixels)
        except ImageError as error:
            failures[position] = failure_reason(error)
            continue
        try:
            if pixels is not None:
                pixels[position] = pixels_of(fit.apply(image))
        except ImageError as error:
            misfits[position] = failure_reason(error)
    return failures, misfits


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
                image = decode(opener, self.fit.max_pixels, self.fit.pixels)
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
            return mirror(images, draws)
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
            multiprocessing_context=apart.context_of_children,
            generator=torch.Generator(),  # does not change the state of the global generator
            persistent_workers=persistent,
        )


def _identity(result: BatchResult) -> BatchResult:
    return result


EVALUATION_MARGIN = 256 / 224
"""Margin of the centre crop in evaluation, for models trained on random resized crops."""

MAX_BYTES_IN_MEMORY = 4 << 30
"""Maximum size of the decoded images of a dataset, where the recipe does not decide."""


def evaluation_margin(config: ImageData) -> float:
    """The factor by which a resized image exceeds its centre crop, in evaluation."""
    # Images in memory are decoded once, for training too, where the whole image is needed.
    crops = config.augmentation == "random_resized_crop" and not config.in_memory
    return EVALUATION_MARGIN if crops else 1.0


def evaluation_fit(config: ImageData, height: int, width: int) -> Fit:
    """The size of images in evaluation, and in training where these are not cropped at random."""
    margin = evaluation_margin(config)
    return Fit(height, width, margin, max_pixels=config.max_pixels, pixels=config.pixels)


def training_fit(config: ImageData, dataset: Dataset) -> Fit:
    """The size of the recipe, or else that of the first image that can be read."""
    if config.image_size is not None:
        return evaluation_fit(config, config.image_size, config.image_size)
    failures: dict[int, str] = {}
    for position, opener in enumerate(dataset.open_images(range(len(dataset.labels)))):
        try:
            image = decode(opener, config.max_pixels, config.pixels)
        except ImageError as error:
            failures[position] = failure_reason(error)
            if config.on_error == "stop":
                break
        else:
            fit = evaluation_fit(config, image.height, image.width)
            return replace(fit, margin=1.0, resizes=False)
    raise unreadable(named(failures, dataset), dataset.location)


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
            find = partial(find_unreadable, dataset, self.fit)
            failures = find_once(dataset, self.fit.max_pixels, find) if skips else {}
            reader = BatchReader(dataset.open_images, self.fit, self.augmentation, padding)
            workers = self.config.workers or num_workers_here()
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
