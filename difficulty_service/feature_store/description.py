"""The description of a feature store, a JSON file in its folder."""

from pathlib import Path

from difficulty_service.errors import FeatureStoreError
from difficulty_service.feature_description import FeatureDescription
from difficulty_service.files.checked_json import load_checked

DESCRIPTION_FILE = "store.json"
FORMAT_KEY, FORMAT_VERSION = "format_version", 2
REMEDY = "delete the folder and run `difficulty extract` again"


def is_store(folder: Path) -> bool:
    """Whether a folder holds a feature store, complete or not."""
    return (folder / DESCRIPTION_FILE).is_file()


def read_description(folder: Path) -> FeatureDescription:
    """The description of a store's features.

    Raises:
        FeatureStoreError: The folder is not a store, or its description is damaged, of a version
            that this package does not know, lacks a key or has one of another type.
    """
    path = folder / DESCRIPTION_FILE
    try:
        values = load_checked(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise FeatureStoreError(
            f"{folder} is not a feature store: it has no {path.name}, which says how the features "
            "were made",
            "make both with `difficulty extract`",
        ) from None
    except ValueError as error:
        raise FeatureStoreError(f"{path} is damaged: {error}", REMEDY) from error
    version = values.pop(FORMAT_KEY, None)
    if version != FORMAT_VERSION:
        raise FeatureStoreError(
            f"{path} has version {version} of feature stores, but this package reads "
            f"{FORMAT_VERSION}",
            REMEDY,
        )
    return FeatureDescription.of(values)
