"""Names that a person gives to classes whose labels are whole numbers."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace

from difficulty_service.base.errors import DatasetError
from difficulty_service.datasets.sample import Dataset


def name_numbered(dataset: Dataset, names: Sequence[str]) -> Dataset:
    """The dataset with names for its classes 0, 1, 2, ...; no names leave it as it is.

    Raises:
        DatasetError: Its labels are no whole numbers, or one of them has no name.
    """
    if not names:
        return dataset
    unnamed = [name for name in dataset.class_names if not name.isdecimal()]
    if unnamed or not dataset.has_labels:
        why = f"has classes such as {unnamed[0]!r}" if dataset.has_labels else "has no labels"
        raise DatasetError(
            f"{dataset.location!r} {why}, and class names are for labels that are whole numbers",
            "leave them out",
            parameter="class_names",
        )
    numbers = list(map(int, dataset.class_names))
    if max(numbers) >= len(names):
        raise DatasetError(
            f"the label {max(numbers)} has no name: {len(names)} class names are those of 0 to "
            f"{len(names) - 1}",
            "name every label from 0 on, also those that no sample has",
            parameter="class_names",
        )
    digest = hashlib.sha256(json.dumps([dataset.fingerprint, *names]).encode())
    return replace(
        dataset,
        class_names=tuple(names[number] for number in numbers),
        fingerprint=digest.hexdigest(),
    )
