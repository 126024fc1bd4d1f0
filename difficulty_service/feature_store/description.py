"""The description of a feature store, a JSON file in its folder."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from difficulty_service.errors import FeatureStoreError
from difficulty_service.files.checked_json import load_checked

DESCRIPTION_FILE = "store.json"
FORMAT_KEY, FORMAT_VERSION = "format_version", 2
REMEDY = "delete the folder and run `difficulty extract` again"


def is_store(folder: Path) -> bool:
    """Whether a folder holds a feature store, complete or not."""
    return (folder / DESCRIPTION_FILE).is_file()


def read_description(folder: Path) -> Mapping[str, Any]:
    """The description of a store's features.

    Raises:
        FeatureStoreError: The folder is not a store, or its description is damaged or of a version
            that this package does not know.
    """
    path = folder / DESCRIPTION_FILE
    try:
        description = load_checked(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        raise FeatureStoreError(
            f"{folder} is not a feature store: it has no {path.name}, which says how the features "
            "were made",
            "make both with `difficulty extract`",
        ) from None
    except ValueError as error:
        raise FeatureStoreError(f"{path} is damaged: {error}", REMEDY) from error
    version = description.pop(FORMAT_KEY, None)
    if version != FORMAT_VERSION:
        raise FeatureStoreError(
            f"{path} has version {version} of feature stores, but this package reads "
            f"{FORMAT_VERSION}",
            REMEDY,
        )
    return description
