"""Datasets, with labels or without: folders, tables, tars, archives, boxes, and published files."""

from collections.abc import Callable
from dataclasses import replace

from difficulty_service.base.errors import DatasetError
from difficulty_service.base.garbage import collection_paused
from difficulty_service.base.wording import did_you_mean
from difficulty_service.datasets.archive import open_archive
from difficulty_service.datasets.class_folders import open_image_folder
from difficulty_service.datasets.class_names import name_numbered
from difficulty_service.datasets.hugging_face import open_hugging_face
from difficulty_service.datasets.listing import without_labels
from difficulty_service.datasets.memory import open_plugged
from difficulty_service.datasets.objects import OBJECT_FORMATS
from difficulty_service.datasets.published import PUBLISHED_DATASETS
from difficulty_service.datasets.recognition import recognise
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.table import open_table
from difficulty_service.datasets.webdataset import open_webdataset

DATASETS: dict[str, Callable[[str, DatasetOptions], Dataset]] = {
    "image-folder": open_image_folder,
    "table": open_table,
    "webdataset": open_webdataset,
    "archive": open_archive,
    "hugging-face": open_hugging_face,
    "plug-in": open_plugged,
    **{kind: form.open for kind, form in OBJECT_FORMATS.items()},
    **PUBLISHED_DATASETS,
}


def open_dataset(location: str, options: DatasetOptions) -> Dataset:
    """Opens the dataset at a location, whose kind is detected.

    Args:
        location: Path, URI, glob of either, `hf:NAME`, or `PREFIX:REFERENCE` where an installed
            package reads datasets with that prefix.

    Raises:
        DatasetError: There is nothing at the location, or it cannot be read as the detected kind.
        MissingPackage: The kind needs an optional package.
    """
    _require_format(options.format)
    found = recognise(location, options)
    kind = found.kind
    if options.text_column is not None and kind not in ("table", "hugging-face"):
        raise DatasetError.of_location(
            f"{location!r} is of the kind {kind}, and texts are read from tables",
            "name a Parquet, CSV or JSON file with a column of texts",
        )
    if options.outlines and kind not in OBJECT_FORMATS:
        raise DatasetError.leave_out(
            f"{location!r} is of the kind {kind}, and outlines are those of objects in boxes",
            "outlines",
        )
    if options.unlabelled and options.label_column is not None:
        raise DatasetError.leave_out(
            "a label column is named, and labels are to be ignored", "label_column"
        )
    with collection_paused():  # one object for each sample or more, none of them in a circle
        opened = DATASETS[kind](found.location, found.options)
    dataset = replace(opened, location=location, format=kind)
    if options.unlabelled:
        return without_labels(dataset)
    return name_numbered(dataset, options.class_names)


def _require_format(name: str | None) -> None:
    if name is not None and name not in DATASETS:
        raise DatasetError(
            f"there is no format {name!r}",
            f"{did_you_mean(name, DATASETS)}it is one of {', '.join(DATASETS)}",
            parameter="format",
        )
