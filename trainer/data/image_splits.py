"""Datasets of images as splits: held-out samples, image size, and storage of the pixels.

Datasets that a Python program holds, opened under the name they have in its recipe.
"""

from dataclasses import replace

import torch
from torch import Tensor

from difficulty_service.base.errors import ImageError
from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.detection import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.interface.image_sources import open_images
from trainer.config import ImageData
from trainer.data.images import (
    Fit,
    ImageLoading,
    LargeImages,
    MemoryImages,
    decode,
    failure_reason,
    named,
    unreadable,
)
from trainer.data.splits import (
    Splits,
    hold_out,
    imagenet_statistics,
    match_classes,
    mean_and_std,
    named_by,
    refuse_shared_ids,
    with_label_noise,
)
from trainer.own_code import find_own, is_object
from trainer.samples import InputSpec, Samples


def open_images_of(location: str, options: DatasetOptions) -> Dataset:
    """Opens a dataset of images, on disk or held by the program."""
    if not is_object(location):
        return open_dataset(location, options)
    dataset, warnings = open_images(find_own(location), options)
    return replace(dataset, warnings=(*dataset.warnings, *warnings))


def are_of_one_kind(location: str, other: str) -> bool:
    """Whether two locations are read alike, by the same columns."""
    if is_object(location) or is_object(other):
        return is_object(location) and is_object(other)
    return location == other or detect_kind(location) == detect_kind(other)


EVALUATION_MARGIN = 256 / 224
"""Margin of the centre crop in evaluation, for models trained on random resized crops."""


def open_image_splits(config: ImageData, seed: int, device: torch.device) -> Splits:
    """Opens and splits datasets of images.

    Mean and standard deviation are computed over the training images where these are kept in
    memory; otherwise they are those of ImageNet.
    """
    options = _options(config, config.train, config.split, config.label_column)
    with named_by("data.train", config.train):
        dataset = open_images_of(config.train, replace(options, limit=config.limit))
        loading = ImageLoading(config, _training_fit(config, dataset), device, config.augmentation)
        opened = loading.open(dataset)
    everything = opened.samples
    kept, held_out = hold_out(everything.labels, _validation_fraction(config), seed)
    train = replace(opened.select(kept), skipped=everything.skipped, warnings=everything.warnings)
    spec = _spec(opened.inputs, loading.fit, kept)
    return Splits(
        train=with_label_noise(train, config.label_noise, seed),
        validation=(
            opened.select(held_out)
            if len(held_out)
            else _open_validation(config, spec, device, everything)
        ),
        test=open_test_images(config, spec, device, everything.class_names),
        spec=spec,
        all_ids=(
            dataset.sample_ids
            if config.limit is None
            else open_images_of(config.train, options).sample_ids
        ),
    )


def open_image_samples(
    config: ImageData,
    location: str,
    spec: InputSpec,
    device: torch.device,
    split: str | None = None,
    label_column: str | None = None,
) -> Samples:
    """Opens a dataset of images to evaluate a model on, with the class indices of that dataset.

    Images of another size are resized. The image and id columns of the recipe apply to datasets of
    the same kind as the training dataset.
    """
    dataset = open_images_of(location, _options(config, location, split, label_column))
    fit = Fit(spec.shape[1], spec.shape[2], evaluation_margin(config), max_pixels=config.max_pixels)
    return ImageLoading(config, fit, device).open(dataset).samples


def open_test_images(
    config: ImageData, spec: InputSpec, device: torch.device, class_names: tuple[str, ...]
) -> Samples | None:
    """Opens the test dataset of a recipe with the model's class indices; None without one."""
    location, column = config.test, config.test_label_column
    if location is None:
        return None
    with named_by("data.test", location):
        if column is None and are_of_one_kind(location, config.train):
            column = config.label_column
        samples = open_image_samples(config, location, spec, device, config.test_split, column)
        return match_classes(samples, class_names, location)


def _options(
    config: ImageData, location: str, split: str | None, label_column: str | None
) -> DatasetOptions:
    same_kind = are_of_one_kind(location, config.train)
    return DatasetOptions(
        split=split,
        image_column=config.image_column if same_kind else None,
        label_column=label_column,
        id_column=config.id_column if same_kind else None,
    )


def evaluation_margin(config: ImageData) -> float:
    """The factor by which a resized image exceeds its centre crop, in evaluation."""
    # Images in memory are decoded once, for training too, where the whole image is needed.
    crops = config.augmentation == "random_resized_crop" and not config.in_memory
    return EVALUATION_MARGIN if crops else 1.0


def _training_fit(config: ImageData, dataset: Dataset) -> Fit:
    """The size of the recipe, or else that of the first image that can be read."""
    if config.image_size is not None:
        size = config.image_size
        return Fit(size, size, evaluation_margin(config), max_pixels=config.max_pixels)
    failures: dict[int, str] = {}
    for position, opener in enumerate(dataset.open_images(range(len(dataset.labels)))):
        try:
            image = decode(opener, config.max_pixels)
        except ImageError as error:
            failures[position] = failure_reason(error)
            if config.on_error == "stop":
                break
        else:
            return Fit(image.height, image.width, resizes=False, max_pixels=config.max_pixels)
    raise unreadable(named(failures, dataset), dataset.location)


def _validation_fraction(config: ImageData) -> float:
    return 0.0 if isinstance(config.validation, str) else config.validation


def _spec(inputs: MemoryImages | LargeImages, fit: Fit, positions: Tensor) -> InputSpec:
    mean, std = (
        mean_and_std(inputs.pixels, inputs.positions[positions])
        if isinstance(inputs, MemoryImages)
        else imagenet_statistics()
    )
    return InputSpec((3, fit.height, fit.width), mean, std)


def _open_validation(
    config: ImageData, spec: InputSpec, device: torch.device, train: Samples
) -> Samples | None:
    location = config.validation
    if not isinstance(location, str):
        return None
    split = config.validation_split
    with named_by("data.validation", location):
        column = config.label_column if are_of_one_kind(location, config.train) else None
        samples = open_image_samples(config, location, spec, device, split, column)
        if location == config.train:
            refuse_shared_ids(train.sample_ids, samples.sample_ids, location)
        return match_classes(samples, train.class_names, location)
