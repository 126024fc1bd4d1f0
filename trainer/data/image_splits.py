"""Datasets of images as splits: what is held out, how an image gets its size, where it is kept."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.detection import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.errors import ImageError
from difficulty_service.parallel import num_workers
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
"""Of decoded images of one dataset, where the recipe does not decide."""

EVALUATION_MARGIN = 256 / 224
"""How far beyond the centre that is kept an image is resized, after random resized crops."""


@dataclass(frozen=True)
class _Keeping:
    """How the images of one dataset are prepared and kept.

    Attributes:
        config: Of the recipe.
        fit: How a whole image gets its size.
        device: Where batches go.
        augmentation: What training changes; "none" for datasets that only judge.
    """

    config: DataConfig
    fit: Fit
    device: torch.device
    augmentation: Augmentation = "none"

    def open_inputs(self, dataset: Dataset) -> MemoryImages | LargeImages:
        """All images of a dataset, decoded now or later."""
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
        # Crops of images made small before would show neither their detail nor their borders.
        if self.augmentation == "random_resized_crop" and self.fit.resizes:
            return False
        return num_samples * 3 * self.fit.height * self.fit.width <= MAX_BYTES_IN_MEMORY


def open_image_splits(config: DataConfig, seed: int, device: torch.device) -> Splits:
    """Opens, decodes and splits datasets of images.

    Mean and standard deviation are of the training images; where these are not kept in memory,
    the customary ones of photographs.

    Args:
        config: Of the recipe.
        seed: Of the samples held out and of label noise.
        device: Where images are kept, or batches go.

    Raises:
        DatasetError: A dataset or some of its images cannot be read, images differ in size and
            no size is given, classes do not agree, or two splits share samples.
    """
    options = _options(config, config.train, config.split, config.label_column)
    dataset = open_dataset(config.train, replace(options, limit=config.limit))
    keeping = _Keeping(config, _training_fit(config, dataset), device, config.augmentation)
    inputs = keeping.open_inputs(dataset)
    everything = Samples(dataset.sample_ids, _labels(dataset), dataset.class_names, inputs)
    learned, held_out = hold_out(everything.labels, _share(config), seed)
    train = _select(everything, inputs, learned)
    spec = _spec(inputs, keeping.fit, learned)
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
    """Opens a dataset of images to judge a model on; its classes stay its own.

    Args:
        config: Of the recipe; its image and id columns are used where the dataset is of the same
            kind as the training dataset.
        location: Of the dataset.
        spec: Of the model; images of another size are resized to its shape.
        device: Where images are kept, or batches go.
        split: Sub-folder or named split.
        label_column: None finds it.

    Raises:
        DatasetError: The dataset or some of its images cannot be read.
    """
    dataset = open_dataset(location, _options(config, location, split, label_column))
    fit = Fit(spec.shape[1], spec.shape[2], _margin(config), max_pixels=config.max_pixels)
    inputs = _Keeping(config, fit, device).open_inputs(dataset)
    return Samples(dataset.sample_ids, _labels(dataset), dataset.class_names, inputs)


def open_test_images(
    config: DataConfig, spec: InputSpec, device: torch.device, class_names: tuple[str, ...]
) -> Samples | None:
    """Opens the test dataset of a recipe, in the model's classes; None where it names none.

    Raises:
        DatasetError: It cannot be read, or has classes that the model does not know.
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
    # Images that are kept once serve training too, which is to see all of each.
    crops = config.augmentation == "random_resized_crop" and not config.in_memory
    return EVALUATION_MARGIN if crops else 1.0


def _training_fit(config: DataConfig, dataset: Dataset) -> Fit:
    """The size asked for, or else that of the first image."""
    if config.image_size is not None:
        size = config.image_size
        return Fit(size, size, _margin(config), max_pixels=config.max_pixels)
    try:
        image = decode(next(dataset.open_images(range(1))), config.max_pixels)
    except ImageError as error:
        failure = (dataset.sample_ids[0], failure_reason(error))
        raise unreadable([failure], dataset.location) from error
    return Fit(image.height, image.width, resizes=False, max_pixels=config.max_pixels)


def _share(config: DataConfig) -> float:
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
