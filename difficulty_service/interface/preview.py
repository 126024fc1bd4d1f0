"""`preview`: how a dataset would be read."""

from typing import Unpack

from difficulty_service.dataset_formats import DatasetPreview
from difficulty_service.datasets.preview import preview as preview_dataset
from difficulty_service.datasets.sample import DatasetOptions
from difficulty_service.interface.image_sources import LabelledImages, open_images
from difficulty_service.interface.keywords import DatasetChoices
from difficulty_service.interface.options import require_names, run_of
from difficulty_service.interface.scores import warn


def preview(images: LabelledImages, **options: Unpack[DatasetChoices]) -> DatasetPreview:
    """Says how `score_dataset` would read a dataset, and opens no image.

    Args:
        images: A path or URI, or images that a program holds, as for `score_dataset`.
        options: How the dataset is read.

    Returns:
        Its format, split, classes with their numbers of samples, and what would be left out.

    Raises:
        DatasetError: It cannot be read, or may be read in several ways.
    """
    require_names(options, DatasetChoices, "preview")
    reading = DatasetOptions(**run_of(options).reading)
    dataset, warnings = open_images(images, reading)
    warn(warnings)
    return preview_dataset(dataset, reading.split)
