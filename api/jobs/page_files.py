"""Files for the pages of a job, which can be made only as long as its features are there."""

from pathlib import Path

import pyarrow as pa

from api.jobs.files import MAP_FILE, VECTORS_FILE
from api.jobs.kept_features import write_kept_features
from difficulty_service.base.files import replacing
from difficulty_service.base.tables import write_parquet
from difficulty_service.features.source import FeatureSource
from difficulty_service.gaussians.gaussian import Gaussians
from difficulty_service.reports.map import place_samples
from difficulty_service.reports.similar import write_vectors


def write_page_files(
    store: FeatureSource,
    gaussians: Gaussians,
    folder: Path,
    num_rows: int,
    ids: pa.StringArray | None = None,
) -> list[Path]:
    """Writes the map, by what similar images are found, and the features for comparisons.

    Args:
        ids: Ids of the rows; None where they are the samples of the store in its order.

    Returns:
        The files; without the map where there are too few classes or samples for one.

    Raises:
        FeatureStoreError: A part of the store is damaged.
    """
    files = write_kept_features(folder, store, num_rows, ids)
    if write_vectors(folder / VECTORS_FILE, store, gaussians, num_rows, ids):
        files.append(folder / VECTORS_FILE)
    placed = place_samples(store, gaussians)
    if placed is not None:
        with replacing(folder / MAP_FILE) as temporary:
            write_parquet(temporary, placed)
        files.append(folder / MAP_FILE)
    return files
