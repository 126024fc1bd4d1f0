"""The images of a dataset that can be read, decoded once or batch by batch."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.datasets.sample import Dataset
from difficulty_service.runtime.parallel import num_workers
from trainer.config import Augmentation, ImageData
from trainer.data.augmentation import augmentation_of
from trainer.data.decoding import Fit
from trainer.data.images import (
    MemoryImages,
    decode_images,
    decode_readable_images,
    find_unreadable,
    named,
    unreadable,
)
from trainer.data.large_images import BatchReader, LargeImages
from trainer.data.splits import skipped_entries, warnings_of
from trainer.samples import Samples, SkippedEntry

MAX_BYTES_IN_MEMORY = 4 << 30
"""Maximum size of the decoded images of a dataset, where the recipe does not decide."""


@dataclass(frozen=True)
class ImageLoading:
    """The size, storage and augmentation of the images of a dataset.

    Attributes:
        config: Data of the recipe.
        fit: Size of the images and pixel limit.
        device: Device of the batches.
        augmentation: Augmentation in training; "none" for validation and test datasets.
    """

    config: ImageData
    fit: Fit
    device: torch.device
    augmentation: Augmentation = "none"

    def open(self, dataset: Dataset) -> "OpenedImages":
        """Opens the images of a dataset that can be read, decoded now or batch by batch.

        Raises:
            DatasetError: No image can be read; or, where the recipe says to stop, an image that
                is decoded now cannot be read.
        """
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
    """The images of a dataset that can be read.

    Attributes:
        samples: Samples, with what is skipped.
        inputs: Their images.
    """

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
