"""Datasets that a Python program holds, opened under the name they have in its recipe."""

from dataclasses import replace

from difficulty_service.datasets import open_dataset
from difficulty_service.datasets.detection import detect_kind
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.interface.image_sources import open_images
from trainer.own_code import find_own, is_object


def open_images_of(location: str, options: DatasetOptions) -> Dataset:
    """Opens a dataset of images, on disk or held by the program.

    Args:
        location: Location, or the name of an object.
        options: Options for reading.

    Raises:
        DatasetError: The dataset cannot be read.
        ConfigError: The object is not there any more.
    """
    if not is_object(location):
        return open_dataset(location, options)
    dataset, warnings = open_images(find_own(location), options)
    return replace(dataset, warnings=(*dataset.warnings, *warnings))


def are_of_one_kind(location: str, other: str) -> bool:
    """Whether two locations are read alike, by the same columns."""
    if is_object(location) or is_object(other):
        return is_object(location) and is_object(other)
    return location == other or detect_kind(location) == detect_kind(other)
