"""Datasets of images as splits: held-out samples, image size, and storage of the pixels.

Datasets that a Python program holds, opened under the name they have in its recipe.
"""

from dataclasses import replace
from functools import partial

import torch

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.recognition import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.interface.image_sources import open_images
from trainer.config import ImageData
from trainer.data.images import (
    ImageLoading,
    MemoryImages,
    evaluation_fit,
    training_fit,
)
from trainer.data.splits import (
    Splits,
    hold_out,
    imagenet_statistics,
    mean_and_std,
    named_by,
    open_other,
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


def open_image_splits(config: ImageData, seed: int, device: torch.device) -> Splits:
    """Opens and splits datasets of images.

    Mean and standard deviation are computed over the training images where these are kept in
    memory; otherwise they are those of ImageNet.
    """
    options = _options(config, config.train, config.split, config.label_column)
    with named_by("data.train", config.train):
        dataset = open_images_of(config.train, replace(options, limit=config.limit))
        loading = ImageLoading(config, training_fit(config, dataset), device, config.augmentation)
        opened = loading.open(dataset)
    everything = opened.samples
    kept, held_out = hold_out(everything.labels, config.validation, seed)
    train = replace(opened.select(kept), skipped=everything.skipped, warnings=everything.warnings)
    mean, std = (
        mean_and_std(opened.inputs.pixels, opened.inputs.positions[kept])
        if isinstance(opened.inputs, MemoryImages)
        else imagenet_statistics()
    )
    spec = InputSpec((3, loading.fit.height, loading.fit.width), mean, std)
    return Splits(
        train=with_label_noise(train, config.label_noise, seed),
        validation=(
            opened.select(held_out)
            if len(held_out)
            else open_other(
                config,
                "validation",
                everything.class_names,
                everything.sample_ids,
                partial(_open_validation, config, spec, device),
            )
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
    fit = evaluation_fit(config, *spec.shape[1:])
    return ImageLoading(config, fit, device).open(dataset).samples


def open_unlabelled_images(
    config: ImageData,
    location: str,
    spec: InputSpec,
    device: torch.device,
    split: str | None = None,
    column: str | None = None,
) -> Samples:
    """Opens images as `open_image_samples` does, but ignores their labels; all are of one class."""
    options = _options(config, location, split, None)
    column = column or options.image_column
    # No result names one of them, so that another table need not have the recipe's ids.
    options = replace(options, image_column=column, id_column=None, unlabelled=True)
    fit = evaluation_fit(config, *spec.shape[1:])
    return ImageLoading(config, fit, device).open(open_images_of(location, options)).samples


def open_test_images(
    config: ImageData, spec: InputSpec, device: torch.device, class_names: tuple[str, ...]
) -> Samples | None:
    """Opens the test dataset of a recipe with the model's class indices; None without one."""

    def opened(location: str) -> Samples:
        column = config.test_label_column
        if column is None and are_of_one_kind(location, config.train):
            column = config.label_column
        return open_image_samples(config, location, spec, device, config.test_split, column)

    return open_other(config, "test", class_names, (), opened)


def _open_validation(
    config: ImageData, spec: InputSpec, device: torch.device, location: str
) -> Samples:
    column = config.label_column if are_of_one_kind(location, config.train) else None
    return open_image_samples(config, location, spec, device, config.validation_split, column)


def _options(
    config: ImageData, location: str, split: str | None, label_column: str | None
) -> DatasetOptions:
    same_kind = config.format is not None or are_of_one_kind(location, config.train)
    return DatasetOptions(
        format=None if is_object(location) else config.format,
        split=split,
        image_column=config.image_column if same_kind else None,
        label_column=label_column,
        id_column=config.id_column if same_kind else None,
    )
