"""Datasets of images as splits: held-out samples, image size, and storage of the pixels."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.detection import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.errors import ImageError
from difficulty_service.runtime.parallel import num_workers
from trainer.config import Augmentation, DataConfig
from trainer.data.augmentation import augmentation_of
from trainer.data.classes import match_classes, refuse_shared_ids
from trainer.data.decoding import Fit, decode, failure_reason
from trainer.data.images import MemoryImages, decode_images, unreadable
from trainer.data.large_images import BatchReader, LargeImages
from trainer.data.splits import Splits, hold_out, with_label_noise
from trainer.data.statistics import imagenet_statistics, mean_and_std
from trainer.samples import InputSpec, Samples

MAX_BYTES_IN_MEMORY = 4 << 30
"""Maximum size of the decoded images of a dataset, where the recipe does not decide."""

EVALUATION_MARGIN = 256 / 224
"""Margin of the centre crop in evaluation, for models trained on random resized crops."""


@dataclass(frozen=True)
class _ImageLoading:
    """The size, storage and augmentation of the images of a dataset.

    Attributes:
        config: Data of the recipe.
        fit: Size of the images and pixel limit.
        device: Device of the batches.
        augmentation: Augmentation in training; "none" for validation and test datasets.
    """

    config: DataConfig
    fit: Fit
    device: torch.device
    augmentation: Augmentation = "none"

    def open_inputs(self, dataset: Dataset) -> MemoryImages | LargeImages:
        """Opens all images of a dataset, decoded now or batch by batch."""
        positions = torch.arange(len(dataset.labels))
        padding = self.config.crop_padding
        if self._fits_in_memory(len(positions)):
            pixels = decode_images(dataset, self.fit).to(self.device)
            return MemoryImages(pixels, positions, augmentation_of(self.augmentation, padding))
        reader = BatchReader(dataset.open_images, self.fit, self.augmentation, padding)
        workers = self.config.workers or num_workers()
        return LargeImages(dataset, positions, reader, self.device, workers)

    def _fits_in_memory(self, num_samples: int) -> bool:
        if self.config.in_memory is not None:
            return self.config.in_memory
        # Crops must come from the whole image at its full resolution.
        if self.augmentation == "random_resized_crop" and self.fit.resizes:
            return False
        return num_samples * 3 * self.fit.height * self.fit.width <= MAX_BYTES_IN_MEMORY


def open_image_splits(config: DataConfig, seed: int, device: torch.device) -> Splits:
    """Opens and splits datasets of images.

    Mean and standard deviation are computed over the training images where these are kept in
    memory; otherwise they are those of ImageNet.

    Args:
        config: Data of the recipe.
        seed: Seed of the validation split and of label noise.
        device: Device of the batches, and of images kept in memory.

    Raises:
        DatasetError: A dataset or some of its images cannot be read, images differ in size and
            no size is given, classes do not agree, or two splits share samples.
    """
    options = _options(config, config.train, config.split, config.label_column)
    dataset = open_dataset(config.train, replace(options, limit=config.limit))
    loading = _ImageLoading(config, _training_fit(config, dataset), device, config.augmentation)
    inputs = loading.open_inputs(dataset)
    everything = Samples(dataset.sample_ids, _labels(dataset), dataset.class_names, inputs)
    kept, held_out = hold_out(everything.labels, _validation_fraction(config), seed)
    train = _select(everything, inputs, kept)
    spec = _spec(inputs, loading.fit, kept)
    return Splits(
        train=with_label_noise(train, config.label_noise, seed),
        validation=(
            _select(everything, inputs, held_out)
            if len(held_out)
            else _open_validation(config, spec, device, everything)
        ),
        test=open_test_images(config, spec, device, everything.class_names),
        spec=spec,
        all_ids=(
            dataset.sample_ids
            if config.limit is None
            else open_dataset(config.train, options).sample_ids
        ),
    )


def open_image_samples(
    config: DataConfig,
    location: str,
    spec: InputSpec,
    device: torch.device,
    split: str | None = None,
    label_column: str | None = None,
) -> Samples:
    """Opens a dataset of images to evaluate a model on, with the class indices of that dataset.

    Args:
        config: Data of the recipe; its image and id columns apply to datasets of the same kind as
            the training dataset.
        location: Location of the dataset.
        spec: Specification of the model's inputs; images of another size are resized.
        device: Device of the batches, and of images kept in memory.
        split: Sub-folder or named split.
        label_column: Column with the labels; None detects it.

    Raises:
        DatasetError: The dataset or some of its images cannot be read.
    """
    dataset = open_dataset(location, _options(config, location, split, label_column))
    fit = Fit(spec.shape[1], spec.shape[2], _margin(config), max_pixels=config.max_pixels)
    inputs = _ImageLoading(config, fit, device).open_inputs(dataset)
    return Samples(dataset.sample_ids, _labels(dataset), dataset.class_names, inputs)


def open_test_images(
    config: DataConfig, spec: InputSpec, device: torch.device, class_names: tuple[str, ...]
) -> Samples | None:
    """Opens the test dataset of a recipe with the model's class indices; None without one.

    Raises:
        DatasetError: The dataset cannot be read, or has classes that the model was not trained on.
    """
    location, column = config.test, config.test_label_column
    if location is None:
        return None
    if column is None and _is_kind_of_train(config, location):
        column = config.label_column
    samples = open_image_samples(config, location, spec, device, config.test_split, column)
    return match_classes(samples, class_names, location)


def _options(
    config: DataConfig, location: str, split: str | None, label_column: str | None
) -> DatasetOptions:
    same_kind = _is_kind_of_train(config, location)
    return DatasetOptions(
        split=split,
        image_column=config.image_column if same_kind else None,
        label_column=label_column,
        id_column=config.id_column if same_kind else None,
    )


def _is_kind_of_train(config: DataConfig, location: str) -> bool:
    return location == config.train or detect_kind(location) == detect_kind(config.train)


def _margin(config: DataConfig) -> float:
    # Images in memory are decoded once, for training too, where the whole image is needed.
    crops = config.augmentation == "random_resized_crop" and not config.in_memory
    return EVALUATION_MARGIN if crops else 1.0


def _training_fit(config: DataConfig, dataset: Dataset) -> Fit:
    """The size of the recipe, or else that of the first image."""
    if config.image_size is not None:
        size = config.image_size
        return Fit(size, size, _margin(config), max_pixels=config.max_pixels)
    try:
        image = decode(next(dataset.open_images(range(1))), config.max_pixels)
    except ImageError as error:
        failure = (dataset.sample_ids[0], failure_reason(error))
        raise unreadable([failure], dataset.location) from error
    return Fit(image.height, image.width, resizes=False, max_pixels=config.max_pixels)


def _validation_fraction(config: DataConfig) -> float:
    return 0.0 if isinstance(config.validation, str) else config.validation


def _labels(dataset: Dataset) -> Tensor:
    return torch.from_numpy(dataset.labels).long()


def _select(samples: Samples, inputs: MemoryImages | LargeImages, positions: Tensor) -> Samples:
    ids = [samples.sample_ids[position] for position in positions.tolist()]
    return Samples(ids, samples.labels[positions], samples.class_names, inputs.select(positions))


def _spec(inputs: MemoryImages | LargeImages, fit: Fit, positions: Tensor) -> InputSpec:
    mean, std = (
        mean_and_std(inputs.pixels, positions)
        if isinstance(inputs, MemoryImages)
        else imagenet_statistics()
    )
    return InputSpec((3, fit.height, fit.width), mean, std)


def _open_validation(
    config: DataConfig, spec: InputSpec, device: torch.device, train: Samples
) -> Samples | None:
    location = config.validation
    if not isinstance(location, str):
        return None
    column = config.label_column if _is_kind_of_train(config, location) else None
    samples = open_image_samples(config, location, spec, device, config.validation_split, column)
    if location == config.train:
        refuse_shared_ids(train.sample_ids, samples.sample_ids, location)
    return match_classes(samples, train.class_names, location)
