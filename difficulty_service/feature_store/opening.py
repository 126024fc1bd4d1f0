"""Opens features wherever they are: in a feature store, or in a file of arrays."""

from pathlib import Path

from difficulty_service.feature_store.array_files import is_array_file, read_array_file
from difficulty_service.feature_store.arrays import ArrayFeatures
from difficulty_service.feature_store.store import FeatureStore, open_store


def open_features(path: Path, labels_file: Path | None = None) -> FeatureStore | ArrayFeatures:
    """Opens labelled features.

    Args:
        path: Folder that `difficulty extract` wrote, or a file as for `read_array_file`.
        labels_file: Labels of a file, as for `read_array_file`; None for those in or beside it.

    Raises:
        FeatureStoreError: The folder is not a store, or it is incomplete or damaged.
        DatasetError: The file is damaged, or holds no features or no labels.
    """
    if is_array_file(path):
        return read_array_file(path, labels_file)
    return open_store(path)
