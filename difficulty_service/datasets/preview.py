"""What would be read of a dataset, without decoding anything: its format, classes, and the rest."""

from collections.abc import Iterator, Sequence

import numpy as np

from difficulty_service.dataset_formats import (
    DATASET_FORMATS,
    ClassSize,
    DatasetPreview,
    LeftOut,
)
from difficulty_service.datasets.image_openers import extension_problem, has_image_extension
from difficulty_service.datasets.listing import skip_warnings
from difficulty_service.datasets.sample import Dataset, Skipped

MOST_NAMED = 20
"""Entries that are named for each reason why something is left out."""

MOST_REASONS, LONGEST = 50, 300
"""Reasons that are told apart, and characters of a text that comes from the dataset."""

_OF_FILES = ("image-folder", "archive")
"""Formats whose ids are names of files."""


def preview(dataset: Dataset, split: str | None, most_classes: int | None = None) -> DatasetPreview:
    """Describes a dataset that is listed; with the first of its classes, or with all."""
    unread = unread_by_name(dataset)
    labels = np.delete(dataset.labels, [position for position, _ in unread])
    sizes = np.bincount(labels, minlength=len(dataset.class_names)).tolist()
    classes = [
        ClassSize(name=name, num_samples=size)
        for name, size in zip(dataset.class_names, sizes, strict=True)
        if size and dataset.has_labels
    ]
    kind = dataset.format or ""
    of_skipped = skip_warnings(dataset.skipped)
    return DatasetPreview(
        format=kind,
        title=DATASET_FORMATS.get(kind, kind),
        split=split,
        noun=dataset.noun,
        num_samples=len(labels),
        num_classes=len(classes),
        classes=tuple(classes[:most_classes]),
        left_out=tuple(_left_out([*dataset.skipped, *(each for _, each in unread)])),
        notes=tuple(note for note in dataset.warnings if note not in of_skipped),
    )


def unread_by_name(dataset: Dataset) -> list[tuple[int, Skipped]]:
    """The samples that cannot be images by their names: the place of each, its id and why."""
    ids = dataset.sample_ids if dataset.format in _OF_FILES else []
    return [
        (position, (name, extension_problem(name)))
        for position, name in enumerate(ids)
        if not has_image_extension(name)
    ]


def _left_out(skipped: Sequence[Skipped]) -> Iterator[LeftOut]:
    reasons: dict[str, list[str]] = {}
    for name, reason in skipped:
        reasons.setdefault(reason, []).append(name)
    for reason, names in list(reasons.items())[:MOST_REASONS]:
        examples = tuple(name[:LONGEST] for name in names[:MOST_NAMED])
        yield LeftOut(reason=reason[:LONGEST], entries=len(names), examples=examples)
