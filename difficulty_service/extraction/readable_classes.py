"""Whether enough images of a dataset could be read."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.datasets.sample import Dataset
from difficulty_service.errors import DatasetError
from difficulty_service.feature_store.part import BadImage


def require_every_class(
    dataset: Dataset, bad_images: Sequence[BadImage], errors_file: Path
) -> None:
    """Refuses a dataset of which no image, or no image of some class, could be read.

    Args:
        dataset: The dataset.
        bad_images: All images that could not be read.
        errors_file: File that lists them, for the message.

    Raises:
        DatasetError: There is no image, or no image of some class.
    """
    if not bad_images:
        return
    first = f"the first is {bad_images[0].sample_id}: {bad_images[0].reason}"
    if len(bad_images) == len(dataset.labels):
        raise DatasetError(f"none of the {len(bad_images)} images can be read; {first}")
    bad_ids = {bad.sample_id for bad in bad_images}
    readable = [sample_id not in bad_ids for sample_id in dataset.sample_ids]
    unreadable = sorted(set(dataset.labels.tolist()) - set(dataset.labels[readable].tolist()))
    if unreadable:
        names = [dataset.class_names[label] for label in unreadable]
        more = f" and {len(names) - 5} more" if len(names) > 5 else ""  # noqa: PLR2004
        raise DatasetError(
            f"no image of these classes can be read: {', '.join(names[:5])}{more}",
            f"see {errors_file}",
        )
