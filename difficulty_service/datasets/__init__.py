"""Where images and labels come from."""

from collections.abc import Callable

from difficulty_service.datasets.archive import open_archive
from difficulty_service.datasets.detection import detect_kind
from difficulty_service.datasets.hugging_face import open_hugging_face
from difficulty_service.datasets.image_folder import open_image_folder
from difficulty_service.datasets.sample import Dataset, DatasetOptions
from difficulty_service.datasets.table import open_table
from difficulty_service.datasets.webdataset import open_webdataset

DATASETS: dict[str, Callable[[str, DatasetOptions], Dataset]] = {
    "image-folder": open_image_folder,
    "table": open_table,
    "webdataset": open_webdataset,
    "archive": open_archive,
    "hugging-face": open_hugging_face,
}


def open_dataset(location: str, options: DatasetOptions) -> Dataset:
    """Opens whatever dataset lies at a location.

    Args:
        location: A path, a URI, a glob of either, or `hf:NAME`.
        options: How to read it.

    Raises:
        DatasetError: Nothing is there, or it cannot be read as what it looks like.
        MissingPackage: Reading it needs an optional package.
    """
    return DATASETS[detect_kind(location, options.boundary)](location, options)
