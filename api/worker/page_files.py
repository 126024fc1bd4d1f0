"""Files for the pages of a job, which can be made only as long as its features are there."""

from pathlib import Path

import pyarrow as pa

from api.jobs.files import MAP_FILE, VECTORS_FILE
from difficulty_service.feature_store.store import FeatureStore
from difficulty_service.files.atomic_file import replacing
from difficulty_service.files.checked_parquet import write_parquet
from difficulty_service.reporting.map import place_samples
from difficulty_service.reporting.similar import write_vectors
from difficulty_service.statistics.gaussian import Gaussians


def write_page_files(
    store: FeatureStore,
    gaussians: Gaussians,
    folder: Path,
    num_rows: int,
    ids: pa.StringArray | None = None,
) -> list[Path]:
    """Writes the map of the images, and the vectors by which similar images are found.

    Args:
        store: A complete store.
        gaussians: Gaussians of features of the same kind.
        folder: Folder for the files.
        num_rows: Number of rows of the score file.
        ids: Ids of the rows; None where they are the samples of the store in its order.

    Returns:
        The files; without the map where there are too few classes or samples for one.

    Raises:
        FeatureStoreError: A part of the store is damaged.
    """
    files = []
    if write_vectors(folder / VECTORS_FILE, store, gaussians, num_rows, ids):
        files.append(folder / VECTORS_FILE)
    placed = place_samples(store, gaussians)
    if placed is not None:
        with replacing(folder / MAP_FILE) as temporary:
            write_parquet(temporary, placed)
        files.append(folder / MAP_FILE)
    return files
