"""Classes of which no image can be read."""

from collections.abc import Sequence

from difficulty_service.datasets.sample import Dataset
from difficulty_service.errors import DatasetError
from difficulty_service.feature_store.bad_image import BadImage
from difficulty_service.files.wording import list_names


def warn_of_unreadable_classes(dataset: Dataset, bad_images: Sequence[BadImage]) -> list[str]:
    """A sentence that names the classes of which no image could be read, if there are any.

    Raises:
        DatasetError: No image at all could be read.
    """
    if not bad_images:
        return []
    if len(bad_images) == len(dataset.labels):
        first = f"the first is {bad_images[0].sample_id}: {bad_images[0].reason}"
        raise DatasetError(f"none of the {len(bad_images)} images can be read; {first}")
    bad_ids = {bad.sample_id for bad in bad_images}
    readable = [sample_id not in bad_ids for sample_id in dataset.sample_ids]
    unreadable = sorted(set(dataset.labels.tolist()) - set(dataset.labels[readable].tolist()))
    if not unreadable:
        return []
    names = [dataset.class_names[label] for label in unreadable]
    return [f"no image of these classes can be read: {list_names(names)}"]
